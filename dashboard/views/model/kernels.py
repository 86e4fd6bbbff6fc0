"""The model page's kernels: where the time of a call goes, and which kernel explains a change."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.compare.evidence import REST, ListedKernel, is_float32, listed_kernels, stem
from analysis.compare.kernel_groups import KernelGroup, group_kernels
from dashboard import url
from dashboard.components.formats import ABSENT, milliseconds, signed
from dashboard.components.markup import draw, mono, span, table
from dashboard.components.widgets import segments
from dashboard.views.model.choice import Half

_TOP_KERNELS = 14
#: What the profiler's kernels are of, and what the page calls it.
_KINDS = {"compiled": "compiled", "eager": "eager", "outside": "outside cudagraphs"}
_TITLES = {
    "compiled": "Compiled kernels per call",
    "eager": "Eager kernels per call",
    "outside": "Kernels and copies per call that no cudagraph launched",
}

Kernels = Sequence[ListedKernel]


def show(halves: Sequence[Half]) -> None:
    """Draws which kernels the time goes to, which of them changed, and the compiled ones beside eager's."""
    of_kind = {
        kind: [list(listed_kernels(half.measured.details, kind)) if half.measured else [] for half in halves]
        for kind in _KINDS
    }
    kinds = {kind: _KINDS[kind] for kind, of_halves in of_kind.items() if any(of_halves)}
    if not kinds:
        return
    if of_kind["compiled"][-1] and of_kind["eager"][-1]:
        kinds["beside"] = "compiled beside eager"
    st.header("Kernels", anchor=False)
    kind = url.get("kernels") if url.get("kernels") in kinds else next(iter(kinds))
    if len(kinds) > 1:
        segments("kernels", "Kernels of", kinds, kind, default="compiled")
    if kind == "beside":
        draw(_beside(halves[-1], of_kind["eager"][-1], of_kind["compiled"][-1]))
    else:
        draw(_table([half.role for half in halves], of_kind[kind], kind))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Numbers at the end of generated names are left out, "
        "since they shift when a fusion comes or goes. Kernels of the same operations are added up. "
        "The profiler lists the 24 that take longest: ≤ is the most that another one can take."
    )


def _beside(half: Half, eager: Kernels, compiled: Kernels) -> Markup:
    """The kernels of both programs of one side, with their shares of the program's device time; the longest first."""
    totals = [sum(ms for _, _, ms in kernels) for kernels in (eager, compiled)]
    listed = sorted(_by_name(eager, compiled), key=_longest)
    reduced = half.cell is not None and half.cell.dtype not in ("float32", "as_is")
    rows = []
    for one in listed[:_TOP_KERNELS]:
        cells = []
        for launches, ms, total in (
            (one.base_launches, one.base_ms, totals[0]),
            (one.new_launches, one.new_ms, totals[1]),
        ):
            cells += [f"{launches:,.4g}", milliseconds(ms), f"{ms / total:.0%}"] if ms else [ABSENT] * 3
        flag = Markup(" ") + span("tag", "float32") if reduced and is_float32(one.name) else ""
        rows.append([_name(one.name) + flag, *cells])
    head = [
        "kernel",
        *(f"{program} {unit}" for program in ("eager", "compiled") for unit in ("launches", "ms", "share")),
    ]
    note = f"{half.role}, the longest first; float32 marks such kernels in a run of less precision, by their names"
    return table("Compiled beside eager", head, rows, note=note, numbers=range(1, 7))


def _table(roles: Sequence[str], kernels: Sequence[Kernels], kind: str) -> Markup:
    base, new = kernels if len(kernels) == 2 else ((), kernels[0])
    compared = bool(base) and bool(new)
    listed = group_kernels(base, new)
    if not compared:
        listed.sort(key=_longest)
    rows = [_row(_name(item.name, item.names), [item], len(roles), compared) for item in listed[:_TOP_KERNELS]]
    if rest := listed[_TOP_KERNELS:]:
        rows.append(_row(span("soft", "all others"), rest, len(roles), compared))
    sides = [f"{role} {unit}" for role in roles for unit in ("launches", "ms")]
    head = ["kernel", *sides, *(["change, ms"] if compared else [])]
    note = "by change of time" if compared else "by time"
    return table(_TITLES[kind], head, rows, note=note, numbers=range(1, 6))


def _longest(one: KernelGroup) -> tuple[bool, float]:
    return one.name == REST, -max(one.base_ms or 0.0, one.new_ms or 0.0)


def _by_name(eager: Kernels, compiled: Kernels) -> list[KernelGroup]:
    """Return a group for each name that either program has: eager's and compiled kernels are not made of each other."""
    names = dict.fromkeys(stem(name) for name, *_ in (*eager, *compiled))

    def of(kernels: Kernels, name: str) -> tuple[ListedKernel, ...]:
        return tuple(kernel for kernel in kernels if stem(kernel[0]) == name)

    return [KernelGroup(of(eager, name), of(compiled, name)) for name in names]


def _name(name: str, tooltip: str = "") -> Markup:
    return mono(name if len(name) <= 110 else f"{name[:107]}...", tooltip or name)


def _row(name: Markup, items: Sequence[KernelGroup], sides: int, compared: bool) -> list[str]:
    """Launches and milliseconds of some kernels together on each side, and the change of their time."""
    cells = []
    for side, launches, ms in (
        ("base", [item.base_launches for item in items], [item.base_ms for item in items]),
        ("new", [item.new_launches for item in items], [item.new_ms for item in items]),
    )[-sides:]:
        counts, times = (sum(number or 0.0 for number in numbers) for numbers in (launches, ms))
        at_most = "≤ " if any(item.unlisted == side for item in items) else ""
        cells += [f"{counts:,.4g}" if counts else ABSENT, f"{at_most}{milliseconds(times)}" if times else ABSENT]
    return [name, *cells, *([signed(sum(item.change_ms for item in items), 3, "")] if compared else [])]
