"""The model page's kernels: where the time of a call goes, and which kernel explains a change."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.compare import evidence
from dashboard import url
from dashboard.components.formats import ABSENT, milliseconds, signed
from dashboard.components.markup import block, cell, row, span, table, text
from dashboard.pages.model.choice import Half

_TOP_KERNELS = 14


def show(sides: Sequence[Half]) -> None:
    """Which kernels the time goes to, and which of them changed."""
    kinds = [kind for kind in ("compiled", "eager") if any(_kernels(half, kind) for half in sides)]
    if not kinds:
        return
    st.header("Kernels", anchor=False)
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


def _kernels(half: Half, kind: str) -> dict[str, tuple[float, float]]:
    return evidence.kernels(half.found.details, kind) if half.found else {}


def _kernel_table(sides: Sequence[Half], found: Sequence[dict[str, tuple[float, float]]], kind: str) -> str:
    base, new = found if len(found) == 2 else ({}, found[0])
    listed = evidence.kernel_changes(base, new)
    both = len(found) == 2 and bool(base) and bool(new)
    if not both:
        listed.sort(key=lambda item: (item.name == evidence.REST, -max(item.new_ms or 0.0, item.base_ms or 0.0)))
    top = listed[:_TOP_KERNELS]
    rows = [_kernel_row(item, len(found) == 2, both) for item in top]
    rest = listed[_TOP_KERNELS:]
    if rest:
        rows.append(_rest_row(rest, len(found) == 2, both))
    heads = [f"{half.role} {unit}" for half in sides for unit in ("launches", "ms")] + (["change, ms"] if both else [])
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
    return row(span("soft", "all others"), [*cells, *([_kernel_change(total)] if both else [])])


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
    """Without a colour: of one kernel nothing is judged."""
    return cell(text(signed(ms, 3, "")), "n")
