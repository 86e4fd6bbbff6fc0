"""The model page's sections: each shows what two measurements say, and nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st
from markupsafe import Markup
from numpy.typing import NDArray

from analysis.compare import evidence
from analysis.compare.changes import direction
from analysis.compare.leaks import LEAK
from analysis.compare.results import EnvironmentDifference
from collector.metrics import METRICS
from collector.repro import repro_command
from collector.vocabulary import Status
from dashboard.components import changes, charts
from dashboard.components.changes import Look
from dashboard.components.formats import ABSENT, count, number, signed
from dashboard.components.markup import (
    Content,
    bullets,
    change_cells,
    draw,
    joined,
    markdown,
    mono,
    soft,
    span,
    status_tag,
    table,
)
from dashboard.data import Data
from dashboard.views.model.choice import Half
from dashboard.views.model.verdict import CellVerdict

_SHOWN = (
    *("compiled_kernel_ms", "eager_kernel_ms", "device_speedup", "compiled_ms", "eager_ms", "speedup"),
    *("compile_cold_s", "compiled_peak_bytes", "eager_peak_bytes", "compression", "graph_breaks", "recompiles"),
    *("cudagraph_skips", "kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
    *("compile_warm_s", "compile_instructions", "leak_bytes_per_call"),
)
_REASONS = {"graph_break_reasons": "graph breaks", "cudagraph_skip_reasons": "cudagraph skips"}
_LOG = (
    "Nothing more is stored. A bundle keeps the last 8 KiB of a log. A cell that passes has a log only if TORCH_LOGS asked "
    "for one."
)


def metrics(halves: Sequence[Half], verdict: CellVerdict | None) -> None:
    """Both sides' status and every metric that either has, with its change and verdict, as the Compare page shows them."""
    draw(bullets("iw-sides", (joined(" ", [*_head(half), span("soft", half.started)]) for half in halves)))
    values = {name: [half.values.get(name) for half in halves] for name in _SHOWN}
    rows = [_metric_row(name, row, verdict) for name, row in values.items() if any(value is not None for value in row)]
    if not rows:
        return
    head = ["metric", *(half.role for half in halves), *(["change", "95 %", "verdict"] if len(halves) == 2 else [])]
    passing = all(half.measured and half.measured.status == Status.PASS for half in halves)
    note = "" if passing else "a side does not pass: see its status"
    shown = table("What was measured", head, rows, note=note, numbers=range(1, 6))
    width = "iw-narrow" if len(halves) == 2 else "iw-narrower"
    draw(Markup('<div class="{}">{}</div>').format(width, shown))
    parts = [_behind(halves), *([verdict.words if verdict else "", changes.RULE] if len(halves) == 2 else [])]
    if caption := " ".join(part for part in parts if part):
        st.caption(caption)


def failures(halves: Sequence[Half]) -> None:
    """Why a side did not pass, and its log."""
    for half in halves:
        measured = half.measured
        if measured is None:
            continue
        if measured.exception is not None or measured.message is not None:
            st.header(markdown(f"Why {half.role} is {measured.status}"), anchor=False)
            lines = {name: getattr(measured, name) for name in ("stage", "exception", "message", "hint")}
            text = "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
            st.code(text, language=None, wrap_lines=True)
        if measured.log_tail:
            _log(
                half,
                measured.log_tail,
                (measured.cell.suite, measured.cell.model, measured.cell.config, measured.run_id),
            )


def samples(data: Data, halves: Sequence[Half]) -> list[charts.Figure]:
    """How the samples behind the medians lie, in a fold whose title says the medians."""
    of_half = {
        half.title: data.samples(half.measured.run_id, half.measured.cell.cell_id) for half in halves if half.measured
    }
    drawn = {
        kind: {title: values[f"{kind}_ms"] for title, values in of_half.items() if f"{kind}_ms" in values}
        for kind in ("compiled", "eager")
    }
    words = {kind: _medians(kind, values) for kind, values in drawn.items() if values}
    if not words:
        return []
    st.header("Samples", anchor=False)
    fold = st.expander(markdown(". ".join(words.values())), key="samples", on_change="rerun")
    if not fold.open:
        return []
    figures = []
    for kind, alt in words.items():
        roles = [half.role for half in halves if half.title in drawn[kind]]
        figures.append(charts.Figure(f"samples_{kind}", charts.samples(drawn[kind], kind, roles), alt))
    with fold:
        charts.show(figures)
        st.caption("Each tick is one timed call. The thick tick is the median. Eager and compiled calls alternate.")
    return figures


def differences(data: Data, halves: Sequence[Half]) -> None:
    """Options and environment, as far as they differ, and folds with all of them."""
    first, second = halves[0].measured, halves[-1].measured
    if first or second:
        st.header("Options and environment", anchor=False)
    if len(halves) == 2 and first and second:
        heads = [half.title for half in halves]
        if first.program_id == second.program_id and first.program_id:
            soft(f"The effective options are the same (program {first.program_id}).")
        else:
            options = evidence.differences(data.program(first.program_id), data.program(second.program_id))
            _differences("Effective options that differ", options, heads, "The options of a side are not recorded.")
        if first.environment_id == second.environment_id and first.environment_id:
            soft(f"The environment is the same (fingerprint {first.environment_id}).")
        else:
            around = evidence.differences(
                data.environment(first.environment_id), data.environment(second.environment_id)
            )
            _differences("Environment", around, heads, "No difference is recorded.")
    _against_default(data, halves[-1])
    for place, half in zip(st.columns(len(halves)), halves, strict=True):
        with place:
            _folds(data, half)


def reasons(halves: Sequence[Half]) -> None:
    """Why Dynamo left a graph, and why cudagraphs were not used."""
    for key, what in _REASONS.items():
        for half in halves:
            if listed := evidence.reasons(half.measured.details, key) if half.measured else []:
                head = Markup("<p><b>Reasons of {}, {}</b></p>").format(what, half.title)
                draw(head, bullets("iw-mono", listed))


def repro(halves: Sequence[Half]) -> None:
    """The command that measures the cell again."""
    st.header("Measure it again", anchor=False)
    for command in dict.fromkeys(repro_command(half.cell) for half in halves if half.cell):
        st.code(command, language="bash", wrap_lines=True)


def _head(half: Half) -> list[str]:
    title = f": {half.title}" if half.title != half.role else ""
    if half.measured is None:
        tag = status_tag(None) if half.why == "missing" else span("tag", half.why)
    else:
        tag = status_tag(half.measured.status, half.measured.details)
    return [Markup("<b>{}</b>{}").format(half.role, title), tag]


def _behind(halves: Sequence[Half]) -> str:
    """Which values are means of how many measurements; empty where one measurement stands behind each side."""
    passing = [half for half in halves if half.measured and half.measured.status == Status.PASS]
    if all(half.count < 2 for half in passing):
        return ""
    counts = ", ".join(f"{half.role} {half.count}" for half in passing)
    return (
        f"Times, speedups and memory are means of several measurements ({counts}). "
        "Counts, errors, leaks, samples, kernels and the log are those of the newest one."
    )


def _metric_row(metric: str, values: Sequence[float | None], verdict: CellVerdict | None) -> list[Content]:
    head = Markup('<span title="{}">{}</span>').format(METRICS[metric].meaning, METRICS[metric].title)
    cells = [number(metric, value) for value in values]
    if len(values) < 2:
        return [head, *cells]
    base, new = values
    change = (verdict.change(metric) if verdict else None) or changes.change(metric, base, new)
    size, interval, word = change_cells(change)
    if METRICS[metric].is_count or metric == LEAK or change is None:
        size = _difference(metric, base, new, change.look if change else "calm")
    return [head, *cells, size, interval, word]


def _difference(metric: str, base: float | None, new: float | None, look: Look) -> Markup | str:
    """The difference of counts and leaks, which may begin at 0."""
    if base is None or new is None:
        return ABSENT
    sense = direction(metric, base, new) if METRICS[metric].is_count else look
    return span(sense if sense in ("better", "worse") else "calm", signed(new - base, 0, METRICS[metric].unit))


def _log(half: Half, log: str, names: Sequence[str]) -> None:
    """A fold with the stored log and a button that saves it."""
    size = f"{count(len(log.splitlines()), 'line')}, {len(log.encode(errors='replace')) / 1024:.1f} KiB"
    label = f"Log of {half.role}: {size}"
    fold = st.expander(label, icon=":material/article:", key=f"log_{half.role}", on_change="rerun")
    if not fold.open:
        return
    with fold:
        file = f"{charts.file_name(' '.join(names))}.log.txt"
        key = f"save_log_{half.role}"
        charts.download("Log as text", lambda: log.encode(errors="replace"), file, "text/plain", key=key)
        # As high as its content: a keyboard cannot scroll a box of code.
        st.code(log, language=None, wrap_lines=True, height="content")
        st.caption(_LOG)


def _medians(kind: str, values: Mapping[str, NDArray[np.float64]]) -> str:
    medians = ", ".join(f"{title} {number('compiled_ms', float(np.median(found)))}" for title, found in values.items())
    counts = sorted({len(found) for found in values.values()})
    each = " each" if len(values) > len(counts) else ""
    return f"Median {kind} latency: {medians}, of {' and '.join(map(str, counts))} calls{each}"


def _differences(title: str, items: Sequence[EnvironmentDifference], heads: Sequence[str], nothing: str) -> None:
    if not items:
        soft(nothing)
        return
    rows = [
        (mono(item.key), *(mono(", ".join(values) or "not there") for values in (item.base, item.new)))
        for item in items
    ]
    draw(table(title, ["key", *heads], rows))


def _against_default(data: Data, half: Half) -> None:
    """The options of new that its run's default config does not have: what the config really changes."""
    default = data.default_program(half.measured.run_id) if half.measured else None
    if half.measured is None or default is None or half.measured.program_id in (None, default):
        return
    items = evidence.differences(data.program(default), data.program(half.measured.program_id))
    if items:
        _differences("Options that differ from the default config of that run", items, ["default", half.title], "")


def _folds(data: Data, half: Half) -> None:
    """Folds with all that is recorded; hundreds of options are sent only where somebody opens them."""
    measured = half.measured
    if measured is None:
        return
    records: dict[str, dict[str, Any]] = {
        f"Effective options of {half.title}": data.program(measured.program_id),
        f"Environment of {half.title}": data.environment(measured.environment_id),
        f"Everything else recorded about {half.title}": measured.details,
    }
    for place, (title, record) in enumerate(records.items()):
        if record:
            fold = st.expander(markdown(title), key=f"fold_{half.role}_{place}", on_change="rerun")
            if fold.open:
                fold.json(record, expanded=1)
