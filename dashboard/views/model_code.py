"""The model page's generated code and kernels: what differs between two measurements, and where the time of a call goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

import streamlit as st
from markupsafe import Markup

from analysis.compare.kernel_groups import KernelGroup, explained, group_kernels
from analysis.compare.side_differences import (
    CAME,
    CHANGED,
    REST,
    WENT,
    CodeChanges,
    KernelEvidence,
    ListedKernel,
    changes,
    is_float32,
    kernel_evidence,
    listed_kernels,
    stem,
)
from collector.code import KERNEL, Code, Graph, Kernel
from dashboard import url
from dashboard.components.downloads import download, file_name
from dashboard.components.markup import bullets, draw, markdown, mono, paragraph, soft, span, table
from dashboard.components.markup import lines as markup_lines
from dashboard.components.widgets import known, segments, select
from dashboard.components.wording import ABSENT, count, milliseconds, signed
from dashboard.data import Data
from dashboard.views.model_choice import Half
from db.queries.details import code_of, texts_of, with_kernels

#: Kernels of the table; the box below it has all of them.
_TOP_KERNELS = 20
#: Lines of source that a table's cell names.
_LINES = 3
_UNKNOWN = (
    "No generated code is stored of {}: it was measured before bundles kept the code, Inductor did not compile it, or its "
    "compilation failed."
)
_BODY = re.compile(r"async_compile\.\w+\([^']*(?:'[^']*'[^']*)*?r?'''(.*)'''[^\n]*\)", re.DOTALL)
_COLUMNS = (
    "Device time of one call, from the profiler pass: it lists the 24 kernels that take longest and adds up those of one name. "
    "Operations: what Inductor fused. Configuration: what autotuning chose. From: the lines of the model's source."
)
_LOST = "Its text is no longer stored."


#: Of a kernel or wrapper that can be looked at: the id of its text on a side that has it, and how that is shown, with the
#: names of its kernels.
_Text = tuple[str, Callable[[str], str]]


def show(data: Data, halves: Sequence[Half]) -> None:
    """Draws the section; a sentence where a side has no code."""
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
    items = _compared(data, stored) if len(stored) == 2 else _all_of(stored[0][1])
    _look(data, items, [half.title for half, _ in stored])
    _scripts(data, stored)


def _compared(data: Data, codes: Sequence[tuple[Half, Code]]) -> dict[str, list[_Text]]:
    """Draws what changed. Returns what differs, or all of it where nothing does."""
    (base, before), (new, after) = codes
    measured = [half.measured for half in (base, new) if half.measured]
    details = [with_kernels(data.engine, each.cell.cell_id, each.details) for each in measured]
    changed = changes(before, after)
    draw(paragraph("", _sentence(changed, after)))
    if parts := explained(details[0], details[1], changed):
        draw(paragraph("", "What explains the change of device time:"), bullets("", (mono(one.text) for one in parts)))
    if rows := kernel_evidence(changed, details[0], details[1]):
        _table(rows, [base.title, new.title])
    return _all_of(after) if changed.same else _differing(rows, before.graphs, after.graphs)


def _differing(
    rows: Iterable[KernelEvidence], before: Sequence[Graph], after: Sequence[Graph]
) -> dict[str, list[_Text]]:
    """The kernels and wrappers that differ, by title. Both sides of a kernel are shown with the name that it has in new."""
    items: dict[str, list[_Text]] = {}
    for row in rows:
        if row.pair.what:
            _add(items, f"{row.pair.name} ({row.what})", _kernel_texts(row.pair.name, row.pair.base, row.pair.new))
    for number, graphs in enumerate(zip_longest(before, after), 1):
        present = [graph for graph in graphs if graph is not None]
        if len({graph.wrapper for graph in present}) == 2 or len(present) == 1:
            items[f"wrapper of graph {number}"] = [_wrapper_text(graph) for graph in present]
    return items


def _all_of(code: Code) -> dict[str, list[_Text]]:
    items: dict[str, list[_Text]] = {}
    for kernel in {kernel.text_id: kernel for kernel in code.kernels}.values():
        _add(items, kernel.name, _kernel_texts(kernel.name, kernel))
    return items


def _add(items: dict[str, list[_Text]], title: str, texts: list[_Text]) -> None:
    """Adds texts under a title of their own: several graphs may have kernels of one name."""
    own, number = title, 1
    while own in items:
        number += 1
        own = f"{title}, {number}"
    items[own] = texts


def _kernel_texts(name: str, *kernels: Kernel | None) -> list[_Text]:
    return [(kernel.text_id, lambda text: text.replace(KERNEL, name)) for kernel in kernels if kernel]


def _wrapper_text(graph: Graph) -> _Text:
    """The wrapper, its kernels called by name and some digits of their text: numbers shift where a kernel comes or goes."""
    names = {kernel.text_id: f"{stem(kernel.name)}_{kernel.text_id[:4]}" for kernel in graph.kernels}
    placed = re.compile(rf"{KERNEL}_(\w{{16}})")
    return graph.wrapper, lambda text: placed.sub(lambda found: names.get(found[1], found[0]), text)


def _sentence(changed: CodeChanges, new: Code) -> str:
    total = len(changed.pairs)
    if changed.same:
        return f"Both sides have the same generated code ({count(total, 'kernel')}, code {new.code_id})."
    if not changed.kernels:
        return f"The wrapper that calls the kernels changed; {count(total, 'kernel')} unchanged."
    whats = Counter(pair.what for pair in changed.pairs)
    parts = ", ".join(f"{whats[what]} {what}" for what in (CAME, WENT, CHANGED) if whats[what])
    return f"{count(len(changed.kernels), 'kernel')} changed: {parts}; {whats['']} unchanged."


def _table(rows: Sequence[KernelEvidence], heads: Sequence[str]) -> None:
    """The kernels that differ; columns of which nothing is known, as device time on a CPU, are left out."""
    ms, tuned = ([f"{head} {what}" for head in heads] for what in ("ms", "configuration"))
    columns: dict[str, list[str]] = {
        "kernel": [mono(row.pair.name) for row in rows],
        "what": [row.what for row in rows],
        ms[0]: [_ms(row.base_ms) for row in rows],
        ms[1]: [_ms(row.new_ms) for row in rows],
        "change, ms": [_ms_change(row) for row in rows],
        "operations": [_operations(row.pair.source) for row in rows],
        tuned[0]: [_mono(row.base_winner) for row in rows],
        tuned[1]: [_mono(row.new_winner) for row in rows],
        "from": [shown_source(row.lines) for row in rows],
    }
    columns = {head: cells for head, cells in columns.items() if any(cell != ABSENT for cell in cells)}
    note = "by change of time" if "change, ms" in columns else ""
    if len(rows) > _TOP_KERNELS:
        note = f"the first {_TOP_KERNELS} of {len(rows)}"
    numbers = {place for place, head in enumerate(columns) if head in (*ms, "change, ms")}
    cells = list(zip(*columns.values(), strict=True))[:_TOP_KERNELS]
    draw(table("Kernels that differ", list(columns), cells, note=note, numbers=numbers))
    if note:
        st.caption(_COLUMNS)


def _ms(value: float | None) -> str:
    return ABSENT if value is None else milliseconds(value)


def _ms_change(row: KernelEvidence) -> str:
    if row.base_ms is None and row.new_ms is None:
        return ABSENT
    return signed((row.new_ms or 0.0) - (row.base_ms or 0.0), 3, "")


def _mono(text: str | None) -> str:
    return mono(text) if text else ABSENT


def _operations(source: str) -> str:
    """The operations that a kernel is made of, by ATen's names where Inductor tells them, else by the graph's."""
    names = re.search(r"Original ATen: \[([^]]*)", source) or re.search(r"Source Nodes: \[([^]]*)", source)
    return mono(re.sub(r"\b(aten|prims)\.", "", names[1]), source) if names else ABSENT


def shown_source(lines: Sequence[str]) -> str:
    """The first lines of the model's source that a kernel comes from; the pointer shows the code of all."""
    if not lines:
        return ABSENT
    named = markup_lines(*(mono(line.partition("  ")[0], line) for line in lines[:_LINES]))
    more = len(lines) - _LINES
    return named if more <= 0 else markup_lines(named, mono(f"{more} more", "\n".join(lines[_LINES:])))


def _look(data: Data, items: Mapping[str, list[_Text]], heads: Sequence[str]) -> None:
    """A box with all that can be looked at, and the text of what is picked: both sides, or what differs between them."""
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
    # The source of a kernel without the Python call around it.
    bodies = [found[1].strip("\n") if (found := _BODY.fullmatch(text.strip())) else text for text in whole]
    shown = whole if len(bodies) == 2 and bodies[0] == bodies[1] else bodies
    if len(shown) < 2:
        st.code(shown[0], language=language, wrap_lines=True)
        return
    segments("sources", "Show", {"": "what differs", "both": "side by side"}, url.choice("sources"))
    if url.choice("sources"):
        for place, text in zip(st.columns(2), shown, strict=True):
            place.code(text, language=language, wrap_lines=True)
    else:
        lines = unified_diff(shown[0].splitlines(), shown[1].splitlines(), heads[0], heads[1], lineterm="")
        st.code("\n".join(lines), language="diff", wrap_lines=True)


def _scripts(data: Data, codes: Sequence[tuple[Half, Code]]) -> None:
    """Folds with the whole generated code of each graph: sent only where somebody opens them."""
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


_LISTED_KERNELS = 14
#: What the profiler's kernels are of, and what the page calls it.
_KINDS = {"compiled": "compiled", "eager": "eager", "outside": "outside cudagraphs"}
_TITLES = {
    "compiled": "Compiled kernels per call",
    "eager": "Eager kernels per call",
    "outside": "Kernels and copies per call that no cudagraph launched",
}

Kernels = Sequence[ListedKernel]


def show_kernels(halves: Sequence[Half]) -> None:
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
        details = [half.measured.details if half.measured else {} for half in halves]
        draw(_kernel_table([half.role for half in halves], of_kind[kind], kind, details))
    st.caption(
        "Device time of one call by kernel, from the profiler pass. Numbers at the end of generated names are left out, "
        "since they shift when a fusion comes or goes. Kernels of the same operations are added up. "
        "The profiler lists the 24 that take longest: ≤ is the most that another one can take. "
        "From: the lines of the model's source that the kernel was generated from."
    )


def _beside(half: Half, eager: Kernels, compiled: Kernels) -> Markup:
    """The kernels of both programs of one side, with their shares of the program's device time; the longest first."""
    totals = [sum(ms for _, _, ms in kernels) for kernels in (eager, compiled)]
    listed = sorted(_by_name(eager, compiled), key=_longest)
    reduced = half.cell is not None and half.cell.dtype not in ("float32", "as_is")
    rows = []
    for one in listed[:_LISTED_KERNELS]:
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


def _kernel_table(
    roles: Sequence[str], kernels: Sequence[Kernels], kind: str, details: Sequence[Mapping[str, Any]]
) -> Markup:
    base, new = kernels if len(kernels) == 2 else ((), kernels[0])
    compared = bool(base) and bool(new)
    listed = group_kernels(base, new)
    if not compared:
        listed.sort(key=_longest)
    rows = [_row(_name(item.name, item.names), [item], len(roles), compared) for item in listed[:_LISTED_KERNELS]]
    if rest := listed[_LISTED_KERNELS:]:
        rows.append(_row(span("soft", "all others"), rest, len(roles), compared))
    sides = [f"{role} {unit}" for role in roles for unit in ("launches", "ms")]
    head = ["kernel", *sides, *(["change, ms"] if compared else [])]
    numbers = range(1, len(head))
    if any(sources := [item.lines(details[0], details[-1]) for item in listed[:_LISTED_KERNELS]]):
        head.append("from")
        rows = [[*row, shown_source(lines)] for row, lines in zip_longest(rows, sources, fillvalue=())]
    note = "by change of time" if compared else "by time"
    return table(_TITLES[kind], head, rows, note=note, numbers=numbers)


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
