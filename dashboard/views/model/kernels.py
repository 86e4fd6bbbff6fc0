"""The model page's kernels: where the time of a call goes, and which kernel explains a change."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.compare import evidence
from dashboard import url
from dashboard.components.formats import ABSENT, milliseconds, signed
from dashboard.components.markup import draw, mono, span, table
from dashboard.components.widgets import segments
from dashboard.views.model.choice import Half

_TOP_KERNELS = 14

Kernels = dict[str, tuple[float, float]]


def show(halves: Sequence[Half]) -> None:
    """Draws which kernels the time goes to, and which of them changed."""
    of_kind = {
        kind: [evidence.kernels(half.measured.details, kind) if half.measured else {} for half in halves]
        for kind in ("compiled", "eager")
    }
    kinds = [kind for kind, of_halves in of_kind.items() if any(of_halves)]
    if not kinds:
        return
    st.header("Kernels", anchor=False)
    kind = url.get("kernels") if url.get("kernels") in kinds else kinds[0]
    if len(kinds) > 1:
        segments("kernels", "Kernels of", {name: name for name in kinds}, kind, default="compiled")
    draw(_table([half.role for half in halves], of_kind[kind], kind))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Numbers at the end of generated names are left out, "
        "since they shift when a fusion comes or goes. Kernels of one name are added up."
    )


def _table(roles: Sequence[str], kernels: Sequence[Kernels], kind: str) -> Markup:
    base, new = kernels if len(kernels) == 2 else ({}, kernels[0])
    compared = bool(base) and bool(new)
    listed = evidence.pair_kernels(base, new)
    if not compared:
        listed.sort(key=lambda item: (item.name == evidence.REST, -max(item.new_ms or 0.0, item.base_ms or 0.0)))
    rows = [_row(_name(item.name), [item], len(roles), compared) for item in listed[:_TOP_KERNELS]]
    if rest := listed[_TOP_KERNELS:]:
        rows.append(_row(span("soft", "all others"), rest, len(roles), compared))
    sides = [f"{role} {unit}" for role in roles for unit in ("launches", "ms")]
    head = ["kernel", *sides, *(["change, ms"] if compared else [])]
    note = "by change of time" if compared else "by time"
    return table(f"{kind.capitalize()} kernels per call", head, rows, note=note, numbers=range(1, 6))


def _name(name: str) -> Markup:
    return mono(name if len(name) <= 110 else f"{name[:107]}...", name)


def _row(name: Markup, items: Sequence[evidence.KernelChange], sides: int, compared: bool) -> list[str]:
    """Launches and milliseconds of some kernels together on each side, and the change of their time."""
    cells = []
    for side in ("base", "new")[-sides:]:
        launches, ms = (
            sum(getattr(item, f"{side}_{unit}") or 0.0 for item in items) or None for unit in ("launches", "ms")
        )
        cells += [ABSENT if launches is None else f"{launches:,.4g}", ABSENT if ms is None else milliseconds(ms)]
    return [name, *cells, *([signed(sum(item.change_ms for item in items), 3, "")] if compared else [])]
