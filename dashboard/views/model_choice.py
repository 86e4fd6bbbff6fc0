"""Which model, setting and configs the model page shows, its two measurements, and its history on one testbed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.history.regression_record import cell_of
from analysis.reports.permalinks import fixed_side as fixed
from collector.metrics import METRICS
from collector.vocabulary import INPUT_BATCH, Cell, Status, batch_words
from dashboard import url
from dashboard.components import charts, outside_links, sidebar, widgets
from dashboard.components.markup import anchor, draw, joined, markdown, paragraph, soft
from dashboard.components.widgets import known, known_many, segments, select, select_many, switch, ways
from dashboard.components.wording import axis_of, count, moment, number
from dashboard.data import Data
from dashboard.selection import Selection
from db.queries import details
from db.queries.cells import EVERYTHING
from db.queries.details import MeasurementInfo
from db.queries.sides import Side
from db.store_errors import nearest, one_line

_SETTING = ["phase", "dtype", "device", "batch_size"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A model in one setting (phase, dtype, device, batch size), and configs, the first of which is looked at closely.

    `history` has the rows of the setting.
    """

    suite: str
    model: str
    setting: tuple[str, str, str, int]
    configs: tuple[str, ...]
    across_configs: bool
    history: pd.DataFrame

    @property
    def query(self) -> dict[str, str | list[str]]:
        """What an address has of it."""
        setting = ",".join(map(str, self.setting))
        return {"model": f"{self.suite}/{self.model}", "setting": setting, "config": list(self.configs)}


@dataclass(frozen=True, slots=True, eq=False)
class Half:
    """One of two sides of a cell.

    `measured` is the newest measurement, None where the cell is missing or not planned (`why` says which). `values` are the
    metrics as a comparison shows them: means where several measurements passed, whose number is `count`.
    """

    role: str
    title: str
    side: Side
    cell: Cell | None
    measured: MeasurementInfo | None
    why: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    count: int = 0

    @property
    def passes(self) -> bool:
        """Whether it was measured and passed."""
        return self.measured is not None and self.measured.status == Status.PASS

    @property
    def started(self) -> Markup:
        """When it was measured, of which commit, in which run, at which batch if the model chose it; empty if it was not."""
        if self.measured is None:
            return Markup("")
        run = next((run for run in self.side.runs if run.run_id == self.measured.run_id), None)
        release = f" ({run.release})" if run and run.release else ""
        commit = (
            Markup("{}@{}{}, ").format(run.branch, outside_links.commit(run.repo, run.commit), release) if run else ""
        )
        made = self.measured.details.get(INPUT_BATCH)
        batch = f", {batch_words(made)}" if isinstance(made, int) else ""
        return Markup("{} UTC, {}run {}{}").format(
            moment(self.measured.started_at), commit, self.measured.run_id, batch
        )


def choose(selection: Selection) -> Choice | None:
    """Draws the pickers; None, and a sentence, where the address names no such model."""
    models = [f"{model.suite}/{model.name}" for model in selection.data.axes().models]
    wanted = url.get("model") or _first_model(selection, models)
    if wanted not in models:
        widgets.title("Model")
        select("model", "Model", models, None)
        sentence = f"No stored cell has {one_line(wanted)!r}{nearest(wanted, models)}."
        sidebar.show_nothing("There is no such model", sentence)
        return None
    suite, _, model = wanted.partition("/")
    widgets.title(markdown(model))
    soft(suite)
    columns = st.columns([2, 2, 3])
    select("model", "Model", models, wanted, where=columns[0])
    history = selection.data.history(suite, model)
    in_new = history["run_id"].isin(selection.new.run_ids)
    settings = _settings(history)
    setting = known("setting", settings, _first_setting(history, in_new))
    if not in_new.any():
        soft(f"{selection.new.title} did not plan this model.")
        sidebar.link_neighbours(selection.new, selection.data.nights_of(suite, model), "model", model=wanted)
    names = {key: ", ".join((*parts[:3], batch_words(parts[3]))) for key, parts in settings.items()}
    select("setting", "Setting", list(settings), setting, names=names, where=columns[1])
    of_setting = history[_in_setting(history, settings[setting])]
    _say_where(history, of_setting, wanted)
    configs = _configs(of_setting, in_new, columns[2], frozenset(history["config"]))
    return Choice(suite, model, settings[setting], tuple(configs), _across(configs), of_setting)


def halves(selection: Selection, choice: Choice) -> list[Half]:
    """One or two halves: base and new of one config, or two configs of the new side."""
    if choice.across_configs:
        pairs = zip(choice.configs, ("base", "new"), strict=False)
        return [_half(selection, selection.new, choice, config, config, role) for config, role in pairs]
    sides = {"base": selection.base, "new": selection.new}
    return [_half(selection, side, choice, choice.configs[0], role, role) for role, side in sides.items() if side]


def _half(selection: Selection, side: Side, choice: Choice, config: str, title: str, role: str) -> Half:
    # The summary of the whole side is cached, and other pages read it too.
    states = selection.data.summary(fixed(side), EVERYTHING).cells
    wanted = (choice.suite, choice.model, *choice.setting)
    found = (state for state in states if state.cell and (state.cell.axes, state.cell.config) == (wanted, config))
    engine, known_ids = selection.data.engine, choice.history["cell_id"][choice.history["config"] == config]
    which = cell_of(engine, str(known_ids.iloc[0])) if len(known_ids) else None
    state = next(found, None)
    if state is None or state.cell_id is None or state.run_id is None:
        return Half(role, title, side, which, None, "not planned" if state is None else "missing")
    measured = details.measurement(engine, state.run_id, state.cell_id)
    history = choice.history
    passed = (history["cell_id"] == state.cell_id) & (history["status"] == Status.PASS)
    count = int((passed & history["run_id"].isin(side.run_ids)).sum())
    return Half(role, title, side, which, measured, values=state.values, count=count)


def _first_model(selection: Selection, models: Sequence[str]) -> str:
    """One that the new side measured, so that there is something to see."""
    cells = selection.data.summary(selection.fixed_new, selection.filters).cells
    measured = (state.cell for state in cells if state.cell and state.status is not None)
    return next((f"{cell.suite}/{cell.model}" for cell in measured), models[0])


def _settings(history: pd.DataFrame) -> dict[str, tuple[str, str, str, int]]:
    """The settings of a history by what the address has for each."""
    kinds = history[_SETTING].drop_duplicates().itertuples(index=False)
    settings = sorted((str(phase), str(dtype), str(device), int(batch)) for phase, dtype, device, batch in kinds)
    return {",".join(map(str, setting)): setting for setting in settings}


def _first_setting(history: pd.DataFrame, in_new: pd.Series) -> str:
    """One that has the configs of the address, if any has, and that the new side measured, if it measured any."""
    of_address = history["config"].isin(url.get_all("config"))
    best = (history[of_address & in_new], history[of_address], history[in_new], history)
    return next(iter(_settings(next(rows for rows in best if len(rows)))))


def _say_where(history: pd.DataFrame, of_setting: pd.DataFrame, model: str) -> None:
    """Links to the settings that have a config of the address which this setting lacks."""
    for config in set(url.get_all("config")) - set(of_setting["config"]):
        settings = _settings(history[history["config"] == config])
        links = [
            anchor(url.link("model", model=model, setting=key, config=config), ", ".join(map(str, setting)))
            for key, setting in settings.items()
        ]
        if links:
            draw(paragraph("soft", joined(" ", [f"{config} is measured in another setting:", joined("; ", links)])))


def _in_setting(rows: pd.DataFrame, setting: tuple[str, str, str, int]) -> pd.Series:
    return (rows[_SETTING] == list(setting)).all(axis=1)


def _configs(
    history: pd.DataFrame, in_new: pd.Series, where: st.delta_generator.DeltaGenerator, elsewhere: frozenset[str]
) -> list[str]:
    """The configs that are picked; else the first one that the new side measured. Other settings have those of `elsewhere`."""
    names = sorted(history["config"].unique())
    measured = history["config"][in_new & history["status"].notna()]
    default = str(measured.iloc[0]) if len(measured) else names[0]
    wanted = [name for name in url.get_all("config") if name in names or name not in elsewhere]
    chosen = known_many("config", names, wanted)[: charts.MOST_LINES] or [default]
    title = "Configs (details are of the first)"
    select_many("config", title, names, chosen, most=charts.MOST_LINES, where=where)
    return chosen


def _across(configs: Sequence[str]) -> bool:
    """Draws the choice between two sides and two configs, where there are two configs."""
    if len(configs) < 2:
        return False
    first, second = markdown(configs[0]), markdown(configs[1])
    titles = {"": f"{first}, base against new", "configs": f"{first} against {second}, new side"}
    segments("versus", "Side by side", titles, url.choice("versus"))
    return bool(url.choice("versus"))


_METRICS = (
    *("compiled_kernel_ms", "compiled_ms", "eager_ms"),
    *("device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
    *("error_margin", "host_overhead_us", "joules_per_call"),
)
#: Runs that are drawn unless all are asked for, and charts that are drawn before the fold.
_NEWEST, _FIRST = 120, 2


@dataclass(frozen=True, slots=True)
class Runs:
    """The history in time, as charts take it: its rows, the labels of the places, and where base and new are."""

    rows: pd.DataFrame
    labels: Sequence[str]
    configs: Sequence[str]
    sides: Mapping[str, int]

    def metric(self, metric: str) -> charts.Figure:
        """The chart of a metric."""
        title = METRICS[metric].title
        size, head = axis_of(metric, title)
        rows = self.rows.dropna(subset=[metric])
        texts = [number(metric, value) for value in rows[metric]]
        rows = rows.assign(value=rows[metric] / size, text=texts)
        facts = rows.drop_duplicates("place").set_index("place")[["started", "commit", "run"]]
        chart = charts.lines(rows, facts, self.labels, self.configs, title=head, pick="run", sides=self.sides)
        words = f"{title} over {count(rows['place'].nunique(), 'run')}: {charts.from_to(rows, self.configs)}"
        return charts.Figure(f"history_{metric}", chart, words, picks=True)

    def worst(self, metric: str, link: Callable[..., str]) -> Markup:
        """A sentence with the worst value of a metric, which leads to its run."""
        rows = self.rows.dropna(subset=[metric])
        row = rows.sort_values(metric, ascending=METRICS[metric].better == "higher", kind="stable").iloc[0]
        words = f"{number(metric, row[metric])}, {row['config']}, {row['started']} UTC"
        return joined(" ", [f"Worst {METRICS[metric].title}:", anchor(link(base="", new=row["run"]), words)])

    def statuses(self) -> charts.Figure:
        """The chart of how each run ended."""
        columns = ["place", "config", "status", "started", "commit", "run"]
        tally = self.rows["status"].fillna("missing").value_counts()
        words = "How each run ended: " + ", ".join(f"{number_of} {status}" for status, number_of in tally.items())
        chart = charts.statuses(self.rows[columns], self.labels, self.configs, self.sides)
        return charts.Figure("history_status", chart, words)


def show_history(selection: Selection, choice: Choice, decided: str = "") -> None:
    """Draws the section; `decided` names the metric that the verdict hangs on, which comes first."""
    st.header("History", anchor=False)
    chosen = choice.history[choice.history["config"].isin(choice.configs)]
    # Of a night on several GPUs only the one on which this model was.
    mine = chosen[chosen["run_id"].isin(selection.new.run_ids)]
    testbeds = set(mine["testbed_id"].unique()) or {run.testbed_id for run in selection.new.runs}
    here = chosen[chosen["testbed_id"].isin(testbeds)].drop_duplicates(["run_id", "config"], keep="last")
    runs = here["run_id"].nunique()
    elsewhere = chosen["run_id"].nunique() - runs
    left_out = f" {count(elsewhere, 'run')} on other testbeds left out." if elsewhere else ""
    if runs < 2:
        st.caption(f"{count(runs, 'run')} of this on new's testbed: a history needs two.{left_out}")
        return
    if runs > _NEWEST and not switch("runs", f"Show all {runs:,} runs", "all"):
        here = newest(here)
    sides = {"base": selection.base, "new": selection.new}
    marks = {name: side.run_ids for name, side in sides.items() if side}
    of = runs_of(selection.data, here, choice.configs, marks)
    shown = f"The newest {len(of.labels)} of {count(runs, 'run')}" if len(of.labels) < runs else count(runs, "run")
    hidden = [name for name in ("base", "new") if name not in of.sides and getattr(selection, name) is not None]
    unmarked = f" Not among them: {' and '.join(hidden)}." if hidden and len(of.labels) < runs else ""
    band = "The band is how far neighbours usually scatter (95 %)."
    st.caption(f"{shown} on new's testbed, in the order of their commits.{unmarked}{left_out} {band}")
    drawn = [name for name in dict.fromkeys((decided, *_METRICS)) if name in here and here[name].notna().any()]
    leading = st.container()
    charts.show([of.statuses()])
    picked = charts.show([of.metric(name) for name in drawn[:_FIRST]])
    if rest := drawn[_FIRST:]:
        titles = ", ".join(METRICS[name].title for name in rest)
        fold = st.expander(f"History of {titles}", key="history", on_change="rerun")
        if fold.open:
            with fold:
                picked += charts.show([of.metric(name) for name in rest])
    link = partial(url.link, "model", **choice.query)
    ways(leading, picked, dict(zip(of.rows["run"].unique(), of.labels, strict=True)), link, "run")
    if drawn:
        with leading:
            draw(paragraph("iw-ways", of.worst(drawn[0], link)))


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the newest runs."""
    in_time = rows.drop_duplicates("run_id").sort_values(["started_at", "run_id"])
    return rows[rows["run_id"].isin(in_time["run_id"].iloc[-_NEWEST:])]


def runs_of(data: Data, rows: pd.DataFrame, configs: Sequence[str], marks: Mapping[str, Collection[str]]) -> Runs:
    """The runs of `rows` in the order of their commits; `marks` are names of runs that have a rule, by its label."""
    ran = set(rows["run_id"])
    labels = {run_id: label for run_id, label in data.places().items() if run_id in ran}
    places = {run_id: place for place, run_id in enumerate(labels)}
    history = rows.assign(
        place=rows["run_id"].map(places),
        date=rows["started_at"],
        started=[moment(when) for when in rows["started_at"]],
        commit=rows["commit"].astype(str).str[:10],
        run=rows["run_id"],
        line=rows["config"],
    ).sort_values("place", kind="stable")
    marked: dict[str, int] = {}
    for name, runs in marks.items():
        of_side = [places[run] for run in runs if run in places]
        marked |= {name: of_side[0]} if of_side else {}
    return Runs(history, list(labels.values()), configs, marked)
