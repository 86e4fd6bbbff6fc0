"""The page of one model, with all that the store knows: two measurements side by side, and its history from run to run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st
from markupsafe import Markup
from numpy.typing import NDArray

from analysis.compare import side_differences
from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.cell_verdicts import MARGIN
from analysis.compare.comparison import Comparison
from analysis.compare.cost_parts import AFTER_COMPILING, pass_times
from analysis.elements import charts, wording
from analysis.elements.listings import metric_row
from analysis.elements.program_tables import host_table, memory_tables
from analysis.elements.wording import (
    ABSENT,
    OUTCOMES,
    ChangeWords,
    bullets,
    count,
    joined,
    judged,
    moment,
    mono,
    number,
    paragraph,
    said,
    seconds,
    signed,
    span,
    status_tag,
    table,
)
from analysis.present import called, noise_line
from analysis.reports.facts import eager_lines
from analysis.rerun import stored_repro
from collector.failures import Explanation
from collector.metrics import METRICS, Place, shown_in
from collector.vocabulary import NEAREST, PYTORCH_CHECK, judged_otherwise, sizes_of
from dashboard import widgets
from dashboard.data import Data, Pair
from dashboard.url import Selection, current
from dashboard.views import model_parts
from dashboard.views.model_parts import Choice, Half
from dashboard.widgets import download, draw, file_name, markdown, show_figures, soft
from db.queries import details
from db.store_errors import FilterError


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """One cell of a comparison."""

    cell: CellComparison
    comparison: Comparison

    def change(self, metric: str) -> ChangeWords | None:
        """Return the judged change of a metric; None where it is not judged."""
        return judged(self.cell, metric)

    @property
    def decided(self) -> str:
        """The metric that tells best what became of the cell; may be empty."""
        return (self.cell.leading.metric if self.cell.leading else None) or ""

    @property
    def sentence(self) -> str:
        """The outcome of the cell and its reason as a sentence: `Regressed: device time +12 %.`"""
        parts = [f"{OUTCOMES[outcome].capitalize()}{detail and f': {detail}'}." for outcome, detail in said(self.cell)]
        return " ".join(parts)

    @property
    def words(self) -> str:
        """Sentences on the eager runs, and on the noise that was assumed for the metrics judged here; may be empty."""
        metrics = [name for name in self.comparison.noise if name in self.cell.judged]
        if not metrics:
            return ""
        eager = "".join(f"{line[:1].upper()}{line[1:]}. " for line in eager_lines(self.cell)).replace("?. ", "? ")
        line = f"{eager}{noise_line(self.comparison, metrics)} This cell's own repeats, if any, count too."
        moved = "" if self.cell.is_comparable else " The machine differs between the sides, so there is no verdict."
        return line + moved


def cell_verdict(selection: Selection, choice: Choice, halves: Sequence[Half]) -> CellVerdict | None:
    """Return the cell with its comparison; None where there are no two measurements to judge."""
    measured = [half.measured for half in halves if half.measured]
    pair = selection.pair
    if choice.across_configs:
        pair = Pair(selection.fixed_new, selection.fixed_new, (choice.configs[0], choice.configs[1]))
    if pair is None or len(measured) < 2:
        return None
    try:
        comparison = selection.data.comparison(pair)
    except FilterError:  # two configs of one name
        return None
    found = (one for one in comparison.cells if one.cell.cell_id == measured[1].cell.cell_id)
    cell = next(found, None)
    return CellVerdict(cell, comparison) if cell else None


_SHOWN = shown_in(*Place)
#: Passes of the compiler, and parts of memory, that are shown.
_PASSES = 12
_OF_RUNS = ("compiled_ms", "eager_ms", "compiled_kernel_ms", "compile_cold_s")
_LOG = (
    "Nothing more is stored. A bundle keeps the last 8 KiB of a log. A cell that passes has a log only if TORCH_LOGS asked "
    "for one."
)

Record = Mapping[str, Any]


def sides(halves: Sequence[Half], verdict: CellVerdict | None) -> None:
    """Draw the verdict in one sentence, and both sides' status."""
    if verdict:
        draw(paragraph("iw-verdict", verdict.sentence))
    draw(bullets("iw-sides", (joined(" ", [*_head(half), span("soft", half.started)]) for half in halves)))


def metrics(halves: Sequence[Half], verdict: CellVerdict | None) -> None:
    """Draw every metric that a side has, with its change and verdict, as the Compare page shows them."""
    values = {name: [half.values.get(name) for half in halves] for name in _SHOWN}
    rows = [
        metric_row(name, row, verdict.change(name) if verdict else None)
        for name, row in values.items()
        if any(value is not None for value in row)
    ]
    if not rows:
        return
    is_pair = len(halves) == 2
    head = ["metric", *(half.role for half in halves), *(["change", "95 %", "verdict"] if is_pair else [])]
    note = "" if all(half.passes for half in halves) else "a side does not pass: see its status"
    shown = table("Metrics", head, rows, note=note, numbers=range(1, 6))
    draw(Markup('<div class="{}">{}</div>').format("iw-narrow" if is_pair else "iw-narrower", shown))
    parts = [_behind(halves), *([verdict.words if verdict else "", wording.RULE] if is_pair else [])]
    for half in halves:
        if half.measured and (path := half.measured.details.get(NEAREST)):
            margin = number(MARGIN, half.values.get(MARGIN))
            draw(paragraph("soft", joined(" ", (f"Nearest to its limit in {half.role}, at {margin}:", mono(path)))))
        if half.measured and judged_otherwise(half.measured.status, half.measured.metrics.get(PYTORCH_CHECK)):
            told = str(half.measured.details.get(PYTORCH_CHECK, ""))
            draw(
                paragraph(
                    "soft", joined(" ", (f"PyTorch's own accuracy check says otherwise of {half.role}:", mono(told)))
                )
            )
    if caption := " ".join(part for part in parts if part):
        with st.expander("How is this decided?"):
            st.caption(caption)


def compile_passes(data: Data, halves: Sequence[Half], verdict: CellVerdict | None) -> None:
    """Draw how long each pass of the compiler took, the largest change first, and what they add up to."""
    of_sides = [_details_of_runs(data, half) for half in halves]
    times = pass_times(of_sides[0], of_sides[-1])
    if not times:
        return
    rows: list[tuple[str, ...]] = [
        (one.name, seconds(one.base_s), seconds(one.new_s), signed(one.change_s, 2, "s"), _verdict(one.verdict))
        for one in times
    ]
    head = ["pass", *(half.role for half in halves), "change", "verdict"]
    if not (verdict and verdict.cell.is_comparable and any(one.verdict for one in times)):
        rows, head = [row[:-1] for row in rows], head[:-1]
    if len(halves) < 2:
        times.sort(key=lambda one: -(one.new_s or 0.0))
        rows, head = [(one.name, seconds(one.new_s)) for one in times], ["pass", halves[0].role]
    compiling = [one for one in times if one.name not in AFTER_COMPILING]
    whole = [seconds(sum(getattr(one, side) or 0.0 for one in compiling)) for side in ("base_s", "new_s")]
    note = f"each without the passes that it calls; without {' and '.join(AFTER_COMPILING)} they add up to " + (
        " → ".join(whole) if len(halves) > 1 else whole[1]
    )
    if any(len(details) > 1 for details in of_sides):
        note = f"means of {' and '.join(str(len(details)) for details in of_sides)} runs; {note}"
    shown = table("Compile time by pass", head, rows[:_PASSES], note=note, numbers=range(1, 4))
    draw(Markup('<div class="iw-narrow">{}</div>').format(shown))
    for half in halves:
        if half.measured and (folder := half.measured.details.get("trace")):
            soft(f"torch's trace of {half.role}, from the folder in which the run was started:")
            st.code(f"tlparse {shlex.quote(str(folder))}/*.log", language="bash", wrap_lines=True)


def _details_of_runs(data: Data, half: Half) -> list[Mapping[str, Any]]:
    """Return the details of a side's passing measurements with times of passes; without any, the details of the newest one."""
    if half.measured is None:
        return []
    found = details.details_of(data.engine, half.side.keys, half.measured.cell.cell_id) if half.passes else []
    return [one for one in found if "compile_phases_s" in one] or [half.measured.details]


def _verdict(outcome: Outcome | None) -> str:
    return span(outcome.look, called(outcome)) if outcome else ABSENT


def host_time(halves: Sequence[Half]) -> None:
    """Draw what the host does in a call, the largest change first."""
    if shown := host_table(*_evidence(halves), is_pair=len(halves) > 1):
        draw(Markup('<div class="iw-narrow">{}</div>').format(shown))


def memory(halves: Sequence[Half]) -> None:
    """Draw what is saved for the backward pass and what is alive at the peak, the largest change first."""
    for shown in memory_tables(*_evidence(halves), is_pair=len(halves) > 1):
        draw(shown)


def _evidence(halves: Sequence[Half]) -> list[Mapping[str, Any]]:
    return [half.measured.details if half.measured else {} for half in (halves[0], halves[-1])]


def runs(choice: Choice, halves: Sequence[Half]) -> None:
    """Draw the times of each run of both sides, where a side's values are means of several."""
    rows, history = [], choice.history
    for half in halves:
        if half.measured:
            of_half = history["cell_id"].eq(half.measured.cell.cell_id) & history["run_id"].isin(half.side.run_ids)
            for run in history[of_half].sort_values("started_at").to_dict("records"):
                times = [number(name, run[name]) for name in _OF_RUNS]
                rows.append((f"{half.role}, {moment(run['started_at'])} UTC", run["run_id"], run["status"], *times))
    if any(half.count > 1 for half in halves):
        head = ["side", "run", "status", *(METRICS[name].title for name in _OF_RUNS)]
        draw(table("Each run", head, rows, note="the values above are their geometric means", numbers=range(3, 7)))


def sizes(halves: Sequence[Half]) -> None:
    """Draw both sizes of a dynamic config: latencies beside a static program of each size, and the recompilations."""
    for half in halves:
        measured = sizes_of(half.measured.details) if half.measured else []
        rows = [
            (
                str(size),
                *(number("compiled_ms", ms) for ms in (size.eager_ms, size.static_ms, size.compiled_ms)),
                number("over_static", size.over_static),
                number("recompiles", size.recompiles),
                size.status or half.measured.status if half.measured else ABSENT,
            )
            for size in measured
        ]
        if rows:
            head = ["size", "eager", "static", "dynamic", "over static", "recompiles", "status"]
            draw(table(f"Sizes of {half.title}", head, rows, numbers=range(1, 6)))


def failures(halves: Sequence[Half]) -> None:
    """Draw the reason why a side did not pass, and its log."""
    for half in halves:
        measured = half.measured
        if measured and (measured.exception is not None or measured.message is not None):
            st.header(markdown(f"Why {half.role} is {measured.status}"), anchor=False)
            lines = {name: getattr(measured, name) for name in ("stage", "exception", "message", "hint")}
            text = "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
            if explanation := Explanation.of(measured.details):
                text += f"\n{explanation}"
            st.code(text, language=None, wrap_lines=True)
        if measured and measured.log_tail:
            cell = measured.cell
            _log(half.role, measured.log_tail, f"{cell.suite} {cell.model} {cell.config} {measured.run_id}")


def samples(data: Data, halves: Sequence[Half]) -> None:
    """Draw the samples behind the medians, in a fold whose title says the medians."""
    of_half = {
        half: details.samples(data.engine, half.measured.run_id, half.measured.cell.cell_id)
        for half in halves
        if half.measured
    }
    drawn = {
        kind: {half: of[f"{kind}_ms"] for half, of in of_half.items() if f"{kind}_ms" in of}
        for kind in ("compiled", "eager")
    }
    words = {kind: _medians(kind, values) for kind, values in drawn.items() if values}
    if not words:
        return
    st.header("Samples", anchor=False)
    fold = st.expander(markdown(". ".join(words.values())), key="samples", on_change="rerun")
    if not fold.open:
        return
    figures = []
    for kind, alt in words.items():
        by_title = {half.title: values for half, values in drawn[kind].items()}
        chart = charts.samples(by_title, kind, [half.role for half in drawn[kind]], widgets.colors())
        figures.append(charts.Figure(f"samples_{kind}", chart, alt))
    with fold:
        show_figures(figures)
        st.caption("Each tick is one timed call. The thick tick is the median. Eager and compiled calls alternate.")


def differences(data: Data, halves: Sequence[Half]) -> None:
    """Draw options and environment, as far as they differ, and folds with all of them."""
    first, second = halves[0].measured, halves[-1].measured
    if first or second:
        st.header("Options and environment", anchor=False)
    named = [
        (half.measured.program_id, half.measured.environment_id) if half.measured else (None, None) for half in halves
    ]
    programs = [details.program(data.engine, name or "") or {} for name, _ in named]
    environments = [details.environment(data.engine, name or "") or {} for _, name in named]
    if len(halves) == 2 and first and second:
        heads = [half.title for half in halves]
        if first.program_id == second.program_id and first.program_id:
            soft(f"The effective options are the same (program {first.program_id}).")
        elif not _differences("Effective options that differ", programs, heads):
            soft("The options of a side are not recorded.")
        if first.environment_id == second.environment_id and first.environment_id:
            soft(f"The environment is the same (fingerprint {first.environment_id}).")
        elif not _differences("Environment", environments, heads):
            soft("No difference is recorded.")
    # The real changes of the config: the options of new that its run's default config does not have.
    default = data.default_program(second.run_id) if second else None
    if second and default and second.program_id not in (None, default):
        sides = [details.program(data.engine, default) or {}, programs[-1]]
        heads = ["default", halves[-1].title]
        _differences("Options that differ from the default config of that run", sides, heads)
    for place, half, program, environment in zip(st.columns(len(halves)), halves, programs, environments, strict=True):
        with place:
            _folds(half, program, environment)


def reasons(halves: Sequence[Half]) -> None:
    """Draw the reasons why Dynamo left a graph or compiled it again, and why cudagraphs were not used."""
    for key, what in side_differences.REASONS.items():
        for half in halves:
            if listed := side_differences.reasons(half.measured.details, key) if half.measured else []:
                head = Markup("<p><b>Reasons of a {}, {}</b></p>").format(what, half.title)
                draw(head, bullets("iw-mono", listed))


def repro(data: Data, halves: Sequence[Half]) -> None:
    """Draw the command that measures the cell again."""
    st.header("Reproduce", anchor=False)
    with data.engine.connect() as conn:
        measured = [(half.cell, half.measured.run_id if half.measured else None) for half in halves if half.cell]
        commands = dict.fromkeys(stored_repro(conn, cell, run_id) for cell, run_id in measured)
    for command in commands:
        st.code(command, language="bash", wrap_lines=True)


def _head(half: Half) -> list[str]:
    title = f": {half.title}" if half.title != half.role else ""
    if half.measured is None:
        tag = status_tag(None) if half.why == "missing" else span("tag", half.why)
    else:
        tag = status_tag(half.measured.status, half.measured.details)
        if night := half.measured.details.get("same_code_as"):
            tag += span("tag", f"same code as {night}, not timed again")
    return [Markup("<b>{}</b>{}").format(half.role, title), tag]


def _behind(halves: Sequence[Half]) -> str:
    """Return a sentence on how many measurements each side's means are of; empty where each side has one measurement."""
    passing = [half for half in halves if half.passes]
    if all(half.count < 2 for half in passing):
        return ""
    counts = ", ".join(f"{half.role} {half.count}" for half in passing)
    return (
        f"Times, speedups and memory are means of several measurements ({counts}). "
        "Counts, errors, leaks, samples, kernels and the log are those of the newest one."
    )


def _log(role: str, log: str, name: str) -> None:
    """Draw a fold with the stored log and a button that saves it as a file of that name."""
    size = f"{count(len(log.splitlines()), 'line')}, {len(log.encode(errors='replace')) / 1024:.1f} KiB"
    fold = st.expander(f"Log of {role}: {size}", icon=":material/article:", key=f"log_{role}", on_change="rerun")
    if not fold.open:
        return
    with fold:
        file, key = f"{file_name(name)}.log.txt", f"save_log_{role}"
        download("Log as text", lambda: log.encode(errors="replace"), file, "text/plain", key=key)
        # As high as its content: a keyboard cannot scroll a box of code.
        st.code(log, language=None, wrap_lines=True, height="content")
        st.caption(_LOG)


def _medians(kind: str, values: Mapping[Half, NDArray[np.float64]]) -> str:
    medians = [f"{half.title} {number('compiled_ms', float(np.median(of)))}" for half, of in values.items()]
    counts = sorted({len(of) for of in values.values()})
    each = " each" if len(values) > len(counts) else ""
    return f"Median {kind} latency: {', '.join(medians)}, of {' and '.join(map(str, counts))} calls{each}"


def _differences(title: str, records: Sequence[Record], heads: Sequence[str]) -> bool:
    """Draw the keys whose values differ, and return whether there are any."""
    items = side_differences.differences(*records)
    rows = [
        (mono(item.key), *(mono(", ".join(values) or "not in this version") for values in (item.base, item.new)))
        for item in items
    ]
    if rows:
        draw(table(title, ["key", *heads], rows))
    return bool(rows)


def _folds(half: Half, program: Record, environment: Record) -> None:
    """Draw folds with all that is recorded; hundreds of options are sent only where somebody opens them."""
    records = {
        f"Effective options of {half.title}": program,
        f"Environment of {half.title}": environment,
        f"Everything else recorded about {half.title}": half.measured.details if half.measured else {},
    }
    for place, (title, record) in enumerate(records.items()):
        if record:
            fold = st.expander(markdown(title), key=f"fold_{half.role}_{place}", on_change="rerun")
            if fold.open:
                fold.json(record, expanded=1)


def page(selection: Selection) -> None:
    """Draw the page."""
    choice = model_parts.choose(selection)
    if choice is None:
        return
    halves = model_parts.halves(selection, choice)
    verdict = cell_verdict(selection, choice, halves)
    # In the order of the question: what became of it, why, by how much, because of what, since when, under which options.
    sides(halves, verdict)
    failures(halves)
    failed = any(half.measured and not half.passes for half in halves)
    if failed:
        repro(selection.data, halves)
    metrics(halves, verdict)
    runs(choice, halves)
    sizes(halves)
    compile_passes(selection.data, halves, verdict)
    host_time(halves)
    memory(halves)
    model_parts.show(selection.data, halves)
    model_parts.show_kernels(halves)
    model_parts.show_roof(halves)
    model_parts.show_history(selection, choice, verdict.decided if verdict else "")
    samples(selection.data, halves)
    differences(selection.data, halves)
    reasons(halves)
    if not failed:
        repro(selection.data, halves)


page(current())
