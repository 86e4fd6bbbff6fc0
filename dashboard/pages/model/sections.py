"""The model page's sections: each says what two measurements show, and nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from analysis.compare import evidence
from analysis.compare.changes import direction
from analysis.compare.results import EnvironmentDifference
from collector.metrics import METRICS
from collector.repro import repro_command
from dashboard.components import changes
from dashboard.components.formats import ABSENT, TITLES, number, signed
from dashboard.components.markup import block, cell, change, markdown, row, span, status_tag, table, text
from dashboard.components.pictures import Gallery
from dashboard.data import Data
from dashboard.pages.model import log as model_log
from dashboard.pages.model.choice import Half, started
from dashboard.pages.model.verdict import CellVerdict

_SHOWN = (
    *("compiled_kernel_ms", "eager_kernel_ms", "device_speedup", "compiled_ms", "eager_ms", "speedup"),
    *("compile_cold_s", "compiled_peak_bytes", "eager_peak_bytes", "compression", "graph_breaks", "recompiles"),
    *("cudagraph_skips", "kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
    *("compile_warm_s", "compile_instructions", "leak_bytes_per_call"),
)


def status(sides: Sequence[Half], verdict: CellVerdict | None) -> None:
    """Both sides' status and every number that either has, with what the verdict says of its change."""
    heads = "".join(f"<li>{_named(half)} {_tag(half)} {span('soft', started(half))}</li>" for half in sides)
    st.html(block(f'<ul class="iw-sides">{heads}</ul>'))
    found = [half.found.metrics if half.found else {} for half in sides]
    rows = []
    for metric in _SHOWN:
        values = [metrics.get(metric) for metrics in found]
        if any(value is not None for value in values):
            rows.append(_metric_row(metric, values, verdict))
    if rows:
        names = [half.role for half in sides] + (["change", "95 %", "verdict"] if len(sides) == 2 else [])
        note = (
            ""
            if all(half.found and half.found.status == "pass" for half in sides)
            else "a side does not pass: see its status"
        )
        shown = table("What was measured", ["metric", *names], rows, note=note, numbers=1)
        width = "iw-narrow" if len(sides) == 2 else "iw-narrower"
        st.html(block(f'<div class="{width}">{shown}</div>'))
        if len(sides) == 2:
            st.caption(" ".join(part for part in (verdict.said if verdict else "", changes.RULE) if part))


def failures(sides: Sequence[Half]) -> None:
    """Why a side did not pass, and its log."""
    for half in sides:
        found = half.found
        if found is None or (found.exception is None and not found.log_tail):
            continue
        if found.exception is not None or found.message is not None:
            st.header(markdown(f"Why {half.role} is {found.status}"), anchor=False)
            lines = {"stage": found.stage, "exception": found.exception, "message": found.message, "hint": found.hint}
            st.code(
                "\n".join(f"{name}: {said}" for name, said in lines.items() if said), language=None, wrap_lines=True
            )
        model_log.show(half)


def samples(data: Data, sides: Sequence[Half], gallery: Gallery) -> None:
    """How the samples behind the medians lie."""
    found = {half.title: data.samples(half.found.run_id, half.found.cell.cell_id) for half in sides if half.found}
    drawn = {
        kind: {title: values[f"{kind}_ms"] for title, values in found.items() if f"{kind}_ms" in values}
        for kind in ("compiled", "eager")
    }
    if not any(drawn.values()):
        return
    st.header("Samples", anchor=False)
    said = {kind: _said_samples(kind, values) for kind, values in drawn.items() if values}
    # Two charts more take a browser as long as the rest of the page: their finding is said, and they are drawn when asked for.
    fold = st.expander(markdown(". ".join(said.values())), key="samples", on_change="rerun")
    if not fold.open:
        return
    from dashboard.pages.model import charts  # altair takes long to import, and a page without samples does not need it

    for place, kind in zip(fold.columns(2), said, strict=False):
        roles = [half.role for half in sides if half.title in drawn[kind]]
        chart = charts.sample_chart(drawn[kind], kind, roles)
        gallery.show(place, chart, key=f"samples_{kind}", alt=said[kind])
    fold.caption("Every tick is one timed call, the thick one the median; eager and compiled calls took turns.")


def surroundings(data: Data, sides: Sequence[Half]) -> None:
    """Options and environment, as far as they differ."""
    first, second = sides[0].found, sides[-1].found
    if first or second:
        st.header("Options and environment", anchor=False)
    if len(sides) == 2 and first and second:
        heads = [half.title for half in sides]
        if first.program_id == second.program_id and first.program_id:
            _say(f"The effective options are the same (program {first.program_id}).")
        else:
            options = evidence.differences(data.program(first.program_id), data.program(second.program_id))
            _differences("Effective options that differ", options, heads, "The options of a side are not recorded.")
        around = evidence.differences(data.environment(first.environment_id), data.environment(second.environment_id))
        if first.environment_id == second.environment_id and first.environment_id:
            _say(f"The environment is the same (fingerprint {first.environment_id}).")
        else:
            _differences("Environment", around, heads, "No difference is recorded.")
    for half in sides[-1:]:
        _against_default(data, half)
    for place, half in zip(st.columns(len(sides)), sides, strict=True):
        with place:
            _records(data, half)


def reasons(sides: Sequence[Half]) -> None:
    """Why Dynamo left a graph, and why cudagraphs were not used."""
    kinds = {"graph_break_reasons": "graph breaks", "cudagraph_skip_reasons": "cudagraph skips"}
    for key, what in kinds.items():
        for half in sides:
            found = evidence.reasons(half.found.details, key) if half.found else []
            if found:
                items = "".join(f"<li>{text(reason)}</li>" for reason in found)
                st.html(block(f"<p><b>Reasons of {what}, {text(half.title)}</b></p><ul class='iw-mono'>{items}</ul>"))


def repro(sides: Sequence[Half]) -> None:
    """The command that measures the cell again."""
    st.header("Measure it again", anchor=False)
    for command in dict.fromkeys(repro_command(half.cell) for half in sides if half.cell):
        st.code(command, language="bash", wrap_lines=True)


def _named(half: Half) -> str:
    return f"<b>{text(half.role)}</b>" + (f": {text(half.title)}" if half.title != half.role else "")


def _tag(half: Half) -> str:
    if half.found is None:
        return status_tag(None) if half.why == "missing" else span("tag", text(half.why))
    return status_tag(half.found.status, half.found.details)


def _metric_row(metric: str, values: Sequence[float | None], verdict: CellVerdict | None) -> str:
    meaning = METRICS[metric].meaning
    head = f'<span title="{text(meaning)}">{text(TITLES[metric])}</span>'
    cells = [cell(text(number(metric, value)), "n") for value in values]
    if len(values) == 2:
        judged = verdict.change(metric) if verdict else None
        measured = None if metric in changes.COUNTS else changes.change(metric, values[0], values[1])
        found = replace(judged, ratio=measured.ratio) if judged and measured else judged or measured
        cells += change(found) if found else [cell(_difference(metric, values), "n"), cell(""), cell("")]
    return row(head, cells)


def _difference(metric: str, values: Sequence[float | None]) -> str:
    """Of counts: one that was 0 has no ratio, and yet a change."""
    base, new = values
    if base is None or new is None:
        return ABSENT
    sense = direction(metric, base, new) if metric in changes.COUNTS else None
    return span(sense if sense in ("better", "worse") else "calm", text(signed(new - base, 0, "")))


def _said_samples(kind: str, samples: Mapping[str, NDArray[np.float64]]) -> str:
    parts = [f"{title} {number('compiled_ms', float(np.median(values)))}" for title, values in samples.items()]
    return f"Median {kind} latency: {', '.join(parts)}, {_counted(samples)}"


def _counted(samples: Mapping[str, NDArray[np.float64]]) -> str:
    numbers = sorted({len(values) for values in samples.values()})
    return f"of {' and '.join(map(str, numbers))} calls{' each' if len(samples) > len(numbers) else ''}"


def _differences(title: str, found: Sequence[EnvironmentDifference], heads: Sequence[str], nothing: str) -> None:
    if not found:
        _say(nothing)
        return
    rows = [
        row(
            f'<span class="iw-mono">{text(item.key)}</span>',
            [
                cell(f'<span class="iw-mono">{text(", ".join(values) or "not there")}</span>')
                for values in (item.base, item.new)
            ],
        )
        for item in found
    ]
    st.html(block(table(title, ["key", *heads], rows)))


def _against_default(data: Data, half: Half) -> None:
    """The options of new that its run's default config does not have: what the config really changes."""
    default = data.default_program(half.found.run_id) if half.found else None
    if half.found is None or default is None or half.found.program_id in (None, default):
        return
    found = evidence.differences(data.program(default), data.program(half.found.program_id))
    if found:
        _differences("Options that differ from the default config of that run", found, ["default", half.title], "")


def _records(data: Data, half: Half) -> None:
    found = half.found
    if found is None:
        return
    records: dict[str, dict[str, Any]] = {
        f"Effective options of {half.title}": data.program(found.program_id),
        f"Environment of {half.title}": data.environment(found.environment_id),
        f"Everything else recorded about {half.title}": found.details,
    }
    for place, (title, record) in enumerate(records.items()):
        if record:
            # Hundreds of options a side: sent and drawn only where somebody opens them.
            fold = st.expander(markdown(title), key=f"fold_{half.role}_{place}", on_change="rerun")
            if fold.open:
                fold.json(record, expanded=1)


def _say(line: str) -> None:
    st.html(block(f'<p class="soft">{text(line)}</p>'))
