"""The model page's sections: each says what two measurements show, and nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from analysis.results import EnvironmentDifference
from collector.metrics import METRICS
from collector.spelling import repro_command
from dashboard import changes, evidence, url
from dashboard.data import Data
from dashboard.formats import ABSENT, TITLES, count, milliseconds, number, signed
from dashboard.markup import block, cell, change, row, span, status_tag, table, text
from dashboard.model_choice import Half, started

_SHOWN = (
    *("compiled_kernel_ms", "eager_kernel_ms", "device_speedup", "compiled_ms", "eager_ms", "speedup"),
    *("compile_cold_s", "compiled_peak_bytes", "eager_peak_bytes", "compression", "graph_breaks", "recompiles"),
    *("cudagraph_skips", "kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
)
_TOP_KERNELS = 14


def status(sides: Sequence[Half]) -> None:
    """Both sides' status and every number that either has."""
    heads = "".join(
        f"<li><b>{text(half.title)}</b> {_tag(half)} {span('soft', text(started(half)))}</li>" for half in sides
    )
    st.html(block(f'<ul class="iw-sides">{heads}</ul>'))
    found = [half.found.metrics if half.found else {} for half in sides]
    spreads = [half.found.spread.get("compiled_ms") if half.found else None for half in sides]
    rows = []
    for metric in _SHOWN:
        values = [metrics.get(metric) for metrics in found]
        if any(value is not None for value in values):
            rows.append(_metric_row(metric, values, spreads))
    if rows:
        names = [half.title for half in sides] + (["change"] if len(sides) == 2 else [])
        note = (
            ""
            if all(half.found and half.found.status == "pass" for half in sides)
            else "a side does not pass: see its status"
        )
        st.html(block(table("What was measured", ["metric", *names], rows, note=note, numbers=1)))
        if len(sides) == 2:
            st.caption(changes.RULE)


def failures(sides: Sequence[Half]) -> None:
    """Why a side did not pass, and the end of its log."""
    for half in sides:
        found = half.found
        if found is None or (found.exception is None and not found.log_tail):
            continue
        if found.exception is not None or found.message is not None:
            st.subheader(f"Why {half.role} is {found.status}".replace("_", r"\_"), anchor=False)
            lines = {"stage": found.stage, "exception": found.exception, "message": found.message, "hint": found.hint}
            st.code(
                "\n".join(f"{name}: {said}" for name, said in lines.items() if said), language=None, wrap_lines=True
            )
        if found.log_tail:
            with st.expander(f"Log of {half.role}, its end", icon=":material/article:"):
                st.code(found.log_tail, language=None, height=320 if found.log_tail.count("\n") > 12 else "content")


def kernels(sides: Sequence[Half]) -> None:
    """Which kernels the time goes to, and which of them changed."""
    kinds = [kind for kind in ("compiled", "eager") if any(_kernels(half, kind) for half in sides)]
    if not kinds:
        return
    st.subheader("Kernels", anchor=False)
    kind = url.get("kernels") if url.get("kernels") in kinds else kinds[0]
    if len(kinds) > 1:
        st.segmented_control(
            "Kernels of",
            kinds,
            key=url.bind("kernels", kind),
            on_change=url.changed,
            args=("kernels", "compiled"),
            required=True,
            label_visibility="collapsed",
        )
    found = [_kernels(half, kind) for half in sides]
    st.html(block(_kernel_table(sides, found, kind)))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Generated kernels are told apart by name without "
        "their number, which shifts when a fusion comes or goes; those of one name are added up."
    )


def samples(data: Data, sides: Sequence[Half]) -> None:
    """How the samples behind the medians lie."""
    found = {half.title: data.samples(half.found.run_id, half.found.cell.cell_id) for half in sides if half.found}
    found = {title: values for title, values in found.items() if values}
    if not found:
        return
    from dashboard import charts  # altair takes long to import, and a page without samples does not need it

    chart = charts.sample_chart(found)
    if chart is not None:
        st.subheader("Samples", anchor=False)
        st.altair_chart(chart, key="samples", alt=_said_samples(sides))
        st.caption("Every tick is one timed call, the thick one the median; eager and compiled calls took turns.")


def surroundings(data: Data, sides: Sequence[Half]) -> None:
    """Options and environment, as far as they differ."""
    found = [half.found for half in sides]
    if len(found) == 2 and found[0] and found[1]:
        first, second = found
        heads = [half.title for half in sides]
        st.subheader("What else differs", anchor=False)
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
    for half in sides:
        if half.found:
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
    st.subheader("Measure it again", anchor=False)
    for command in dict.fromkeys(repro_command(half.cell) for half in sides if half.cell):
        st.code(command, language="bash", wrap_lines=True)


def _tag(half: Half) -> str:
    if half.found is None:
        return status_tag(None) if half.why == "missing" else span("tag", text(half.why))
    return status_tag(half.found.status)


def _metric_row(metric: str, values: Sequence[float | None], spreads: Sequence[float | None]) -> str:
    meaning = METRICS[metric].meaning
    head = f'<span title="{text(meaning)}">{text(TITLES[metric])}</span>'
    cells = [cell(text(number(metric, value)), "n") for value in values]
    if len(values) == 2:
        found = changes.change(metric, values[0], values[1], changes.band(metric, spreads[0], spreads[1]))
        cells.append(cell(change(found) or text(_difference(values)), "n"))
    return row(head, cells)


def _difference(values: Sequence[float | None]) -> str:
    """A count that was 0 has no ratio."""
    base, new = values
    return ABSENT if base is None or new is None else signed(new - base, 0, "")


def _kernels(half: Half, kind: str) -> dict[str, tuple[float, float]]:
    return evidence.kernels(half.found.details, kind) if half.found else {}


def _kernel_table(sides: Sequence[Half], found: Sequence[dict[str, tuple[float, float]]], kind: str) -> str:
    base, new = found if len(found) == 2 else ({}, found[0])
    listed = evidence.kernel_changes(base, new)
    both = len(found) == 2 and bool(base) and bool(new)
    if not both:
        listed.sort(key=lambda item: -max(item.new_ms or 0.0, item.base_ms or 0.0))
    top = listed[:_TOP_KERNELS]
    rows = [_kernel_row(item, len(found) == 2, both) for item in top]
    rest = listed[_TOP_KERNELS:]
    if rest:
        rows.append(_rest_row(rest, len(found) == 2, both))
    heads = [f"{half.title} {unit}" for half in sides for unit in ("launches", "ms")] + (["change, ms"] if both else [])
    order = "by change of time" if both else "by time"
    return table(f"{kind.capitalize()} kernels per call", ["kernel", *heads], rows, note=order, numbers=1)


def _kernel_row(item: evidence.KernelChange, two: bool, both: bool) -> str:
    name = item.name if len(item.name) <= 110 else f"{item.name[:107]}..."
    head = f'<span class="iw-mono" title="{text(item.name)}">{text(name)}</span>'
    pairs = [(item.base_launches, item.base_ms)] if two else []
    pairs.append((item.new_launches, item.new_ms))
    return row(head, [*_kernel_cells(pairs), *([_kernel_change(item.change_ms)] if both else [])])


def _rest_row(rest: Sequence[evidence.KernelChange], two: bool, both: bool) -> str:
    sides = [("base_launches", "base_ms")] if two else []
    sides.append(("new_launches", "new_ms"))
    pairs = [tuple(sum(getattr(item, name) or 0.0 for item in rest) or None for name in names) for names in sides]
    cells = _kernel_cells([(pair[0], pair[1]) for pair in pairs])
    total = sum(item.change_ms for item in rest)
    return row(span("soft", f"{count(len(rest), 'other')}"), [*cells, *([_kernel_change(total)] if both else [])])


def _kernel_cells(pairs: Sequence[tuple[float | None, float | None]]) -> list[str]:
    return [
        cell(text(shown), "n")
        for launches, ms in pairs
        for shown in (
            ABSENT if launches is None else f"{launches:,.4g}",
            ABSENT if ms is None else milliseconds(ms),
        )
    ]


def _kernel_change(ms: float) -> str:
    look = "worse" if ms > 0.0005 else "better" if ms < -0.0005 else "calm"
    return cell(span(look, text(signed(ms, 3, ""))), "n")


def _said_samples(sides: Sequence[Half]) -> str:
    parts = [
        f"{half.title} {number('compiled_ms', half.found.metrics.get('compiled_ms'))}" for half in sides if half.found
    ]
    return f"Samples of eager and compiled latency; compiled median: {', '.join(parts)}"


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


def _records(data: Data, half: Half) -> None:
    found = half.found
    if found is None:
        return
    records: dict[str, dict[str, Any]] = {
        f"Effective options of {half.title}": data.program(found.program_id),
        f"Environment of {half.title}": data.environment(found.environment_id),
        f"Everything else recorded about {half.title}": found.details,
    }
    for title, record in records.items():
        if record:
            with st.expander(title.replace("_", r"\_")):
                st.json(record, expanded=1)


def _say(line: str) -> None:
    st.html(block(f'<p class="soft">{text(line)}</p>'))
