"""Parts of the model page: the pickers of a model, its two measurements and their history, and its generated code.

The parts on code show the differences, the kernels that the time of a call goes to, and their distance from the roof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.kernel_groups import explained
from analysis.compare.side_differences import (
    changes,
    kernel_evidence,
    listed_kernels,
)
from analysis.elements import addresses, charts
from analysis.elements.addresses import fixed_side as fixed
from analysis.elements.program_tables import (
    KINDS,
    ROOF_CAPTION,
    SourceText,
    all_texts,
    beside_table,
    code_sentence,
    difference,
    differing_texts,
    evidence_table,
    kernel_table,
    rate_words,
    roof_table,
    roof_times,
    sources,
)
from analysis.elements.wording import anchor, bullets, count, joined, moment, mono, number, paragraph
from analysis.history.over_commits import DRAWN, NEWEST, Runs, newest, runs_of
from analysis.history.regression_record import cell_of
from collector.code import Code
from collector.metrics import METRICS
from collector.vocabulary import INPUT_BATCH, Cell, Status, batch_words
from dashboard import url, widgets
from dashboard.data import Data
from dashboard.url import Selection
from dashboard.widgets import (
    download,
    draw,
    file_name,
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
from db.queries.details import MeasurementInfo, code_of, texts_of, with_kernels
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
        """The keys of an address that stand for the choice, with their values."""
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
        """Return whether the side was measured and passed."""
        return self.measured is not None and self.measured.status == Status.PASS

    @property
    def started(self) -> Markup:
        """The start of the measurement, its commit, its run, and the batch if the model chose it; empty without a measurement."""
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
    """Draw the pickers, and return what is picked; draw a sentence and return None where the address names no such model."""
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
    of_setting = history[(history[_SETTING] == list(settings[setting])).all(axis=1)]
    _say_where(history, of_setting, wanted)
    configs = _configs(of_setting, in_new, columns[2], frozenset(history["config"]))
    return Choice(suite, model, settings[setting], tuple(configs), _across(configs), of_setting)


def halves(selection: Selection, choice: Choice) -> list[Half]:
    """Return one or two halves: base and new of one config, or two configs of the new side."""
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
    """Return a model that the new side measured, so that there is something to see; else the first one."""
    cells = selection.data.summary(selection.fixed_new, selection.filters).cells
    measured = (state.cell for state in cells if state.cell and state.status is not None)
    return next((f"{cell.suite}/{cell.model}" for cell in measured), models[0])


def _settings(history: pd.DataFrame) -> dict[str, tuple[str, str, str, int]]:
    """Return the settings of a history by their texts in the address."""
    kinds = history[_SETTING].drop_duplicates().itertuples(index=False)
    settings = sorted((str(phase), str(dtype), str(device), int(batch)) for phase, dtype, device, batch in kinds)
    return {",".join(map(str, setting)): setting for setting in settings}


def _first_setting(history: pd.DataFrame, in_new: pd.Series) -> str:
    """Return a setting that has the configs of the address, if any has, and that the new side measured, if it measured any."""
    of_address = history["config"].isin(url.get_all("config"))
    best = (history[of_address & in_new], history[of_address], history[in_new], history)
    return next(iter(_settings(next(rows for rows in best if len(rows)))))


def _say_where(history: pd.DataFrame, of_setting: pd.DataFrame, model: str) -> None:
    """Draw links to the settings that have a config of the address which this setting lacks."""
    for config in set(url.get_all("config")) - set(of_setting["config"]):
        settings = _settings(history[history["config"] == config])
        links = [
            anchor(url.link("model", model=model, setting=key, config=config), ", ".join(map(str, setting)))
            for key, setting in settings.items()
        ]
        if links:
            draw(paragraph("soft", joined(" ", [f"{config} is measured in another setting:", joined("; ", links)])))


def _configs(
    history: pd.DataFrame, in_new: pd.Series, where: st.delta_generator.DeltaGenerator, elsewhere: frozenset[str]
) -> list[str]:
    """Draw the picker of configs, and return the picked ones; by default the first one that the new side measured.

    A config of the address that only another setting has (`elsewhere`) is left out without a message.
    """
    names = sorted(history["config"].unique())
    measured = history["config"][in_new & history["status"].notna()]
    default = str(measured.iloc[0]) if len(measured) else names[0]
    wanted = [name for name in url.get_all("config") if name in names or name not in elsewhere]
    chosen = known_many("config", names, wanted)[: charts.MOST_LINES] or [default]
    title = "Configs (details are of the first)"
    select_many("config", title, names, chosen, most=charts.MOST_LINES, where=where)
    return chosen


def _across(configs: Sequence[str]) -> bool:
    """Draw the choice between two sides and two configs, where there are two configs; return whether two configs are chosen."""
    if len(configs) < 2:
        return False
    first, second = markdown(configs[0]), markdown(configs[1])
    titles = {"": f"{first}, base against new", "configs": f"{first} against {second}, new side"}
    segments("versus", "Side by side", titles, url.choice("versus"))
    return bool(url.choice("versus"))


#: Charts that are drawn before the fold.
_FIRST = 2


def show_history(selection: Selection, choice: Choice, decided: str = "") -> None:
    """Draw the history; `decided` names the metric that the verdict hangs on, which comes first."""
    st.header("History", anchor=False)
    chosen = choice.history[choice.history["config"].isin(choice.configs)]
    # Of a night on several GPUs only the one that measured this model.
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
    """Return a sentence with the worst value of a metric, which links to its run."""
    rows = runs.rows.dropna(subset=[metric])
    row = rows.sort_values(metric, ascending=METRICS[metric].better == "higher", kind="stable").iloc[0]
    words = f"{number(metric, row[metric])}, {row['config']}, {row['started']} UTC"
    return joined(" ", [f"Worst {METRICS[metric].title}:", anchor(link(base="", new=row["run"]), words)])


_UNKNOWN = (
    "No generated code is stored of {}: it was measured before bundles kept the code, Inductor did not compile it, or its "
    "compilation failed."
)
_COLUMNS = (
    "Device time of one call, from the profiler pass: it lists the 24 kernels that take longest and adds up those of one name. "
    "Operations: what Inductor fused. Configuration: what autotuning chose. From: the lines of the model's source."
)
_LOST = "Its text is no longer stored."


def show(data: Data, halves: Sequence[Half]) -> None:
    """Draw the section on generated code, with a sentence for each side that has none."""
    codes = [
        (half, code_of(data.engine, half.measured.run_id, half.measured.cell.cell_id))
        for half in halves
        if half.measured
    ]
    if not codes:
        return
    st.header("Generated code", anchor=False)
    for half, code in codes:
        if code is None:
            soft(_UNKNOWN.format(half.title))
    stored = [(half, code) for half, code in codes if code is not None]
    if not stored:
        return
    items = _compared(data, stored) if len(stored) == 2 else all_texts(stored[0][1])
    _look(data, items, [half.title for half, _ in stored])
    _scripts(data, stored)


def _compared(data: Data, codes: Sequence[tuple[Half, Code]]) -> dict[str, list[SourceText]]:
    """Draw the changes of the code. Return the texts that differ, or all texts where none does."""
    (base, before), (new, after) = codes
    measured = [half.measured for half in (base, new) if half.measured]
    details = [with_kernels(data.engine, each.cell.cell_id, each.details) for each in measured]
    changed = changes(before, after)
    draw(paragraph("", code_sentence(changed, after)))
    if parts := explained(details[0], details[1], changed):
        draw(paragraph("", "What explains the change of device time:"), bullets("", (mono(one.text) for one in parts)))
    if rows := kernel_evidence(changed, details[0], details[1]):
        draw(evidence_table(rows, [base.title, new.title]))
        if any(row.base_ms is not None or row.new_ms is not None for row in rows):
            st.caption(_COLUMNS)
    return all_texts(after) if changed.same else differing_texts(rows, before.graphs, after.graphs)


def _look(data: Data, items: Mapping[str, list[SourceText]], heads: Sequence[str]) -> None:
    """Draw a picker of texts, and the picked text: of both sides, or the difference between them."""
    if not items:
        return
    first = next(iter(items))
    title = known("kernel", items, first)
    select("kernel", "Source", list(items), title, default=first)
    stored = texts_of(data.engine, [text_id for text_id, _ in items[title]])
    if any(text_id not in stored for text_id, _ in items[title]):
        soft(_LOST)
        return
    whole = [shown(stored[text_id]) for text_id, shown in items[title]]
    language = "cpp" if title.startswith("cpp_") else "python"
    shown = sources(whole)
    if len(shown) < 2:
        st.code(shown[0], language=language, wrap_lines=True)
        return
    segments("sources", "Show", {"": "what differs", "both": "side by side"}, url.choice("sources"))
    if url.choice("sources"):
        for place, text in zip(st.columns(2), shown, strict=True):
            place.code(text, language=language, wrap_lines=True)
    else:
        st.code(difference(shown, heads), language="diff", wrap_lines=True)


def _scripts(data: Data, codes: Sequence[tuple[Half, Code]]) -> None:
    """Draw folds with the whole generated code of each graph, which is sent only where somebody opens them."""
    for half, code in codes:
        graphs = count(len(code.graphs), "graph")
        fold = st.expander(
            markdown(f"All generated code of {half.title}: {graphs}"), key=f"code_{half.role}", on_change="rerun"
        )
        if not fold.open:
            continue
        ids = {text_id for graph in code.graphs for text_id in (graph.wrapper, *(one.text_id for one in graph.kernels))}
        texts = texts_of(data.engine, ids)
        with fold:
            for number, graph in enumerate(code.graphs, 1):
                script = graph.script(texts) if graph.wrapper in texts else _LOST
                st.code(script, language="python", wrap_lines=True)
                if half.cell and graph.wrapper in texts:
                    name = file_name(f"{half.cell.suite} {half.cell.model} {half.title} graph {number}")
                    key = f"save_code_{half.role}_{number}"
                    download("As a file", script.encode, f"{name}.py", "text/x-python", key=key)
            st.caption("Each is a script of its own: with the same torch it runs and times itself.")


def show_kernels(halves: Sequence[Half]) -> None:
    """Draw the kernels that the time goes to, the changes of each, and the compiled ones beside eager's."""
    of_kind = {
        kind: [list(listed_kernels(half.measured.details, kind)) if half.measured else [] for half in halves]
        for kind in KINDS
    }
    kinds = {kind: KINDS[kind] for kind, of_halves in of_kind.items() if any(of_halves)}
    if not kinds:
        return
    if of_kind["compiled"][-1] and of_kind["eager"][-1]:
        kinds["beside"] = "compiled beside eager"
    st.header("Kernels", anchor=False)
    kind = url.get("kernels") if url.get("kernels") in kinds else next(iter(kinds))
    if len(kinds) > 1:
        segments("kernels", "Kernels of", kinds, kind, default="compiled")
    last = halves[-1]
    if kind == "beside":
        draw(
            beside_table(
                last.role, last.cell.dtype if last.cell else "as_is", of_kind["eager"][-1], of_kind["compiled"][-1]
            )
        )
    else:
        details = [half.measured.details if half.measured else {} for half in halves]
        draw(kernel_table([half.role for half in halves], of_kind[kind], kind, details))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Numbers at the end of generated names are left out, "
        "since they shift when a fusion comes or goes. Kernels of the same operations are added up. "
        "The profiler lists the 24 that take longest: ≤ is the most that another one can take. "
        "From: the lines of the model's source that the kernel was generated from."
    )


def show_roof(halves: Sequence[Half]) -> None:
    """Draw the kernels that lose most against the roof, of both sides; a sentence where a side has none, and nothing on a CPU."""
    sides = [(half, half.measured.details if half.measured else {}) for half in halves]
    rows = [roof_times(details) for _, details in sides]
    reasons = [f"{half.title}: {details['no_roof']}." for half, details in sides if details.get("no_roof")]
    if not any(rows) and not reasons:
        return
    st.header("Distance from the roof", anchor=False)
    shares = [(half.role, half.measured.metrics.get("roof_share")) for half in halves if half.measured]
    if told := [f"{role} {share:.0%}" for role, share in shares if share is not None]:
        draw(paragraph("", f"The kernels together are at {', '.join(told)} of the roof."))
    if any(rows):
        draw(roof_table([half.role for half in halves], rows, [details for _, details in sides]))
    if reasons:
        soft(*(f"No share of the roof for {reason}" for reason in reasons))
    st.caption(" ".join(filter(None, (markdown(rate_words(sides[-1][1])), ROOF_CAPTION))))
