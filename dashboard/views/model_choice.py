"""Which model, setting and configs the model page shows, its two measurements, and its history on one testbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.elements import addresses, charts
from analysis.elements.addresses import fixed_side as fixed
from analysis.elements.wording import anchor, count, joined, moment, number, paragraph
from analysis.history.over_commits import DRAWN, NEWEST, Runs, newest, runs_of
from analysis.history.regression_record import cell_of
from collector.metrics import METRICS
from collector.vocabulary import INPUT_BATCH, Cell, Status, batch_words
from dashboard import url, widgets
from dashboard.url import Selection
from dashboard.widgets import (
    draw,
    known,
    known_many,
    markdown,
    segments,
    select,
    select_many,
    show_figures,
    soft,
    switch,
    ways,
)
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
        commit = Markup("{}@{}{}, ").format(run.branch, addresses.commit(run.repo, run.commit), release) if run else ""
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
        widgets.show_nothing("There is no such model", sentence)
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
        widgets.link_neighbours(selection.new, selection.data.nights_of(suite, model), "model", model=wanted)
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


#: Charts that are drawn before the fold.
_FIRST = 2


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
    if runs > NEWEST and not switch("runs", f"Show all {runs:,} runs", "all"):
        here = newest(here)
    sides = {"base": selection.base, "new": selection.new}
    marks = {name: side.run_ids for name, side in sides.items() if side}
    of = runs_of(selection.data.places(), here, choice.configs, marks, widgets.colors())
    shown = f"The newest {len(of.labels)} of {count(runs, 'run')}" if len(of.labels) < runs else count(runs, "run")
    hidden = [name for name in ("base", "new") if name not in of.sides and getattr(selection, name) is not None]
    unmarked = f" Not among them: {' and '.join(hidden)}." if hidden and len(of.labels) < runs else ""
    band = "The band is how far neighbours usually scatter (95 %)."
    st.caption(f"{shown} on new's testbed, in the order of their commits.{unmarked}{left_out} {band}")
    drawn = [name for name in dict.fromkeys((decided, *DRAWN)) if name in here and here[name].notna().any()]
    leading = st.container()
    show_figures([of.statuses()])
    picked = show_figures([of.metric(name) for name in drawn[:_FIRST]])
    if rest := drawn[_FIRST:]:
        titles = ", ".join(METRICS[name].title for name in rest)
        fold = st.expander(f"History of {titles}", key="history", on_change="rerun")
        if fold.open:
            with fold:
                picked += show_figures([of.metric(name) for name in rest])
    link = partial(url.link, "model", **choice.query)
    ways(leading, picked, dict(zip(of.rows["run"].unique(), of.labels, strict=True)), link, "run")
    if drawn:
        with leading:
            draw(paragraph("iw-ways", worst(of, drawn[0], link)))


def worst(runs: Runs, metric: str, link: Callable[..., str]) -> Markup:
    """A sentence with the worst value of a metric, which leads to its run."""
    rows = runs.rows.dropna(subset=[metric])
    row = rows.sort_values(metric, ascending=METRICS[metric].better == "higher", kind="stable").iloc[0]
    words = f"{number(metric, row[metric])}, {row['config']}, {row['started']} UTC"
    return joined(" ", [f"Worst {METRICS[metric].title}:", anchor(link(base="", new=row["run"]), words)])
