"""Tables of a cell's program: its code and kernels, how far these are from the roof, the host's work, the memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from markupsafe import Markup

from analysis.compare.cost_parts import BEFORE, MemoryPart, byte_words, host_parts, peak_parts, saved_parts
from analysis.compare.kernel_groups import KernelGroup, group_kernels
from analysis.compare.side_differences import (
    CAME,
    CHANGED,
    REST,
    WENT,
    CodeChanges,
    KernelEvidence,
    ListedKernel,
    is_float32,
    source_lines,
    stem,
)
from analysis.elements.wording import ABSENT, count, joined, lines, milliseconds, mono, signed, span, table
from collector.code import KERNEL, Code, Graph, Kernel

#: Most kernels of the table; the box below it has all of them.
TOP_KERNELS = 20
#: Parts of a configuration that nearly every kernel has.
_USUAL = ("num_ctas: 1", "num_stages: 1", "maxnreg: None")
#: Most lines of source that a table's cell names.
_LINES = 3
_BODY = re.compile(r"async_compile\.\w+\([^']*(?:'[^']*'[^']*)*?r?'''(.*)'''[^\n]*\)", re.DOTALL)
#: The source of a kernel or wrapper: the id of its text on a side that has it, and a function that puts the names of kernels into
#: the text.
SourceText = tuple[str, Callable[[str], str]]


def differing_texts(
    rows: Iterable[KernelEvidence], before: Sequence[Graph], after: Sequence[Graph]
) -> dict[str, list[SourceText]]:
    """Return the kernels and wrappers that differ, by title. Both sides of a kernel are shown with its name in new."""
    items: dict[str, list[SourceText]] = {}
    for row in rows:
        if row.pair.what:
            _add(items, f"{row.pair.name} ({row.what})", _kernel_texts(row.pair.name, row.pair.base, row.pair.new))
    for number, graphs in enumerate(zip_longest(before, after), 1):
        present = [graph for graph in graphs if graph is not None]
        if len({graph.wrapper for graph in present}) == 2 or len(present) == 1:
            items[f"wrapper of graph {number}"] = [_wrapper_text(graph) for graph in present]
    return items


def all_texts(code: Code) -> dict[str, list[SourceText]]:
    """Return the sources of a code's kernels, by name."""
    items: dict[str, list[SourceText]] = {}
    for kernel in {kernel.text_id: kernel for kernel in code.kernels}.values():
        _add(items, kernel.name, _kernel_texts(kernel.name, kernel))
    return items


def _add(items: dict[str, list[SourceText]], title: str, texts: list[SourceText]) -> None:
    """Add texts under a title of their own: several graphs may have kernels of one name."""
    own, number = title, 1
    while own in items:
        number += 1
        own = f"{title}, {number}"
    items[own] = texts


def _kernel_texts(name: str, *kernels: Kernel | None) -> list[SourceText]:
    return [(kernel.text_id, lambda text: text.replace(KERNEL, name)) for kernel in kernels if kernel]


def _wrapper_text(graph: Graph) -> SourceText:
    """Return a wrapper's source with kernels named by stem and digits of their text: numbers shift if kernels come or go."""
    names = {kernel.text_id: f"{stem(kernel.name)}_{kernel.text_id[:4]}" for kernel in graph.kernels}
    placed = re.compile(rf"{KERNEL}_(\w{{16}})")
    return graph.wrapper, lambda text: placed.sub(lambda found: names.get(found[1], found[0]), text)


def code_sentence(changed: CodeChanges, new: Code) -> str:
    """Return a sentence on how many kernels changed, or that none did."""
    total = len(changed.pairs)
    if changed.same:
        return f"Both sides have the same generated code ({count(total, 'kernel')}, code {new.code_id})."
    if not changed.kernels:
        return f"The wrapper that calls the kernels changed; {count(total, 'kernel')} unchanged."
    whats = Counter(pair.what for pair in changed.pairs)
    parts = ", ".join(f"{whats[what]} {what}" for what in (CAME, WENT, CHANGED) if whats[what])
    return f"{count(len(changed.kernels), 'kernel')} changed: {parts}; {whats['']} unchanged."


def evidence_table(
    rows: Sequence[KernelEvidence], heads: Sequence[str], of: str = "", most: int = TOP_KERNELS
) -> Markup:
    """Return a table of the kernels that differ, without empty columns, such as device time on a CPU."""
    ms, tuned = ([f"{head} {what}" for head in heads] for what in ("ms", "configuration"))
    columns: dict[str, list[str]] = {
        "kernel": [mono(row.pair.name) for row in rows],
        "what": [row.what for row in rows],
        ms[0]: [_ms(row.base_ms) for row in rows],
        ms[1]: [_ms(row.new_ms) for row in rows],
        "change, ms": [_ms_change(row) for row in rows],
        "operations": [_operations(row.pair.source) for row in rows],
        tuned[0]: [_configuration(row.base_winner) for row in rows],
        tuned[1]: [_configuration(row.new_winner) for row in rows],
        "from": [shown_source(row.lines) for row in rows],
    }
    columns = {head: cells for head, cells in columns.items() if any(cell != ABSENT for cell in cells)}
    note = "by change of time" if "change, ms" in columns else ""
    if len(rows) > most:
        note = f"the first {most} of {len(rows)}"
    numbers = {place for place, head in enumerate(columns) if head in (*ms, "change, ms")}
    cells = list(zip(*columns.values(), strict=True))[:most]
    return table("Kernels that differ", list(columns), cells, note=note, numbers=numbers, of=of)


def _ms(value: float | None) -> str:
    return ABSENT if value is None else milliseconds(value)


def _ms_change(row: KernelEvidence) -> str:
    if row.base_ms is None and row.new_ms is None:
        return ABSENT
    return signed((row.new_ms or 0.0) - (row.base_ms or 0.0), 3, "")


def _configuration(winner: str | None) -> str:
    """Return the configuration that autotuning chose, without the usual options; the pointer shows all of it."""
    if not winner:
        return ABSENT
    return mono(", ".join(part for part in winner.split(", ") if part not in _USUAL) or winner, winner)


def _operations(source: str) -> str:
    """Return the operations that a kernel is made of, by ATen's names if Inductor gives them, else by the graph's names."""
    names = re.search(r"Original ATen: \[([^]]*)", source) or re.search(r"Source Nodes: \[([^]]*)", source)
    return mono(re.sub(r"\b(aten|prims)\.", "", names[1]), source) if names else ABSENT


def shown_source(named: Sequence[str]) -> str:
    """Return the first lines of the model's source that a kernel comes from; the pointer shows the code of all."""
    if not named:
        return ABSENT
    first = lines(*(mono(line.partition("  ")[0], line) for line in named[:_LINES]))
    more = len(named) - _LINES
    return first if more <= 0 else lines(first, mono(f"{more} more", "\n".join(named[_LINES:])))


def sources(whole: Sequence[str]) -> Sequence[str]:
    """Return the sources of kernels without the Python calls around them; with the calls if nothing else differs."""
    bodies = [found[1].strip("\n") if (found := _BODY.fullmatch(text.strip())) else text for text in whole]
    return whole if len(bodies) == 2 and bodies[0] == bodies[1] else bodies


def difference(texts: Sequence[str], heads: Sequence[str]) -> str:
    """Return the unified diff of two texts."""
    return "\n".join(unified_diff(texts[0].splitlines(), texts[1].splitlines(), heads[0], heads[1], lineterm=""))


_LISTED_KERNELS = 14
#: The kinds of kernels that the profiler lists, and their names on the page.
KINDS = {"compiled": "compiled", "eager": "eager", "outside": "outside cudagraphs"}
_TITLES = {
    "compiled": "Compiled kernels per call",
    "eager": "Eager kernels per call",
    "outside": "Kernels and copies per call that no cudagraph launched",
}

Kernels = Sequence[ListedKernel]


def beside_table(role: str, dtype: str, eager: Kernels, compiled: Kernels) -> Markup:
    """Return a table of both programs' kernels on one side, with shares of the program's device time; the longest first."""
    totals = [sum(ms for _, _, ms in kernels) for kernels in (eager, compiled)]
    listed = sorted(_by_name(eager, compiled), key=_longest)
    reduced = dtype not in ("float32", "as_is")
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
    note = f"{role}, the longest first; float32 marks such kernels in a run of less precision, by their names"
    return table("Compiled beside eager", head, rows, note=note, numbers=range(1, 7))


def kernel_table(
    roles: Sequence[str], kernels: Sequence[Kernels], kind: str, details: Sequence[Mapping[str, Any]], of: str = ""
) -> Markup:
    """Return a table of the kernels of one or two sides with launches and times, the largest change of time first.

    The kernels of one side alone begin with the longest. `details` are the details of the sides' measurements: they name the
    lines of source that kernels come from.
    """
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
    if any(of_groups := [item.lines(details[0], details[-1]) for item in listed[:_LISTED_KERNELS]]):
        head.append("from")
        rows = [[*row, shown_source(named)] for row, named in zip_longest(rows, of_groups, fillvalue=())]
    note = "by change of time" if compared else "by time"
    return table(_TITLES[kind], head, rows, note=note, numbers=numbers, of=of)


def _longest(one: KernelGroup) -> tuple[bool, float]:
    return one.name == REST, -max(one.base_ms or 0.0, one.new_ms or 0.0)


def _by_name(eager: Kernels, compiled: Kernels) -> list[KernelGroup]:
    """Return a group for each name that either program has: eager kernels do not become compiled ones by fusion."""
    names = dict.fromkeys(stem(name) for name, *_ in (*eager, *compiled))

    def of(kernels: Kernels, name: str) -> tuple[ListedKernel, ...]:
        return tuple(kernel for kernel in kernels if stem(kernel[0]) == name)

    return [KernelGroup(of(eager, name), of(compiled, name)) for name in names]


def _name(name: str, tooltip: str = "") -> Markup:
    return mono(name if len(name) <= 110 else f"{name[:107]}...", tooltip or name)


def _row(name: Markup, items: Sequence[KernelGroup], sides: int, compared: bool) -> list[str]:
    """Return a row with launches and milliseconds of some kernels together on each side, and the change of their time."""
    cells = []
    for side, launches, ms in (
        ("base", [item.base_launches for item in items], [item.base_ms for item in items]),
        ("new", [item.new_launches for item in items], [item.new_ms for item in items]),
    )[-sides:]:
        counts, times = (sum(number or 0.0 for number in numbers) for numbers in (launches, ms))
        at_most = "≤ " if any(item.unlisted == side for item in items) else ""
        cells += [f"{counts:,.4g}" if counts else ABSENT, f"{at_most}{milliseconds(times)}" if times else ABSENT]
    return [name, *cells, *([signed(sum(item.change_ms for item in items), 3, "")] if compared else [])]


_MOST = 14


@dataclass(frozen=True, slots=True)
class RoofTimes:
    """Milliseconds per call in the launches of a kernel, and the milliseconds that they ideally take."""

    ms: float
    ideal_ms: float

    @property
    def share(self) -> str:
        """The share of the roof, `56%`: at most 100 %, as a kernel that a cache serves can be faster than its ideal."""
        return f"{min(1.0, self.ideal_ms / self.ms):.0%}" if self.ms else ABSENT

    @property
    def lost_us(self) -> float:
        """Return the microseconds by which the kernel is slower than its ideal."""
        return 1e3 * max(0.0, self.ms - self.ideal_ms)


ROOF_CAPTION = (
    "The roof of a kernel is the time that its bytes take at the rate of a plain copy, or its operations at that of a plain "
    "matrix product, both measured in the same process. A library's kernels count together where the program calls several "
    "of its functions in a row. A small kernel is far from the roof however good it is: a launch takes microseconds."
)


def roof_times(details: Mapping[str, Any]) -> dict[str, RoofTimes]:
    """Return the times by kernel, named without its number, which shifts if another kernel comes or goes."""
    roof = details.get("roof")
    kernels = roof.get("kernels") if isinstance(roof, Mapping) else None
    found: dict[str, RoofTimes] = {}
    for row in kernels if isinstance(kernels, list) else []:
        with suppress(TypeError, ValueError):  # a row that another program wrote
            name, _, ms, ideal_ms = row
            before = found.get(stem(str(name)), RoofTimes(0.0, 0.0))
            found[stem(str(name))] = RoofTimes(before.ms + float(ms), before.ideal_ms + float(ideal_ms))
    return found


def roof_table(
    roles: Sequence[str], sides: Sequence[Mapping[str, RoofTimes]], details: Sequence[Mapping[str, Any]], of: str = ""
) -> Markup:
    """Return a table of the kernels by the time that they lose, the largest loss of new first."""
    lost: dict[str, float] = {}
    for side in sides:  # the last one, new, counts where both have it
        lost |= {name: times.lost_us for name, times in side.items()}
    names = sorted(lost, key=lambda name: -lost[name])[:_MOST]
    rows = []
    for name in names:
        cells: list[str] = [mono(name if len(name) <= 110 else f"{name[:107]}...", name)]
        for side in sides:
            times = side.get(name)
            cells += [milliseconds(times.ms), times.share, f"{times.lost_us:,.0f}"] if times else [ABSENT] * 3
        lines = next(filter(None, (source_lines(one, _parts(name)) for one in reversed(details))), ())
        rows.append([*cells, shown_source(lines)])
    head = ["kernel", *(f"{role} {unit}" for role in roles for unit in ("ms", "of the roof", "lost, µs")), "from"]
    return table("Kernels by time lost", head, rows, note="per call", numbers=range(1, len(head) - 1), of=of)


def _parts(name: str) -> list[str]:
    """Return the calls of a library that a name like `12 x mm [64, 32] [32, 16] + addmm [8]` has, or the kernel."""
    return [re.sub(r"^\d+ x ", "", part) for part in name.split(" + ")]


def rate_words(details: Mapping[str, Any]) -> str:
    """Return the rates of a copy and products: `A copy reaches 2,900 GB/s here, a product 640 TFLOP/s in bfloat16.`"""
    roof = details.get("roof")
    with suppress(TypeError, ValueError, KeyError, AttributeError):
        if isinstance(roof, Mapping):
            products = [
                f"a product {float(rate):,.0f} TFLOP/s in {name}" for name, rate in roof["product_tflop_s"].items()
            ]
            return ", ".join([f"A copy reaches {float(roof['copy_gb_s']):,.0f} GB/s here", *products]) + "."
    return ""


#: Most groups of tensors, or lines that allocated, that a table names.
_PARTS = 10


def host_table(base: Mapping[str, Any], new: Mapping[str, Any], *, is_pair: bool = True, of: str = "") -> Markup:
    """Return a table of the host's time by part, in microseconds, from two measurements' details; new alone if not `is_pair`.

    It is empty where nothing was measured.
    """
    if not (parts := host_parts(base, new)):
        return Markup()
    rows = [
        (part.name, *(f"{us:.1f}" for us in (part.base_us, part.new_us)), signed(part.change_us, 1, "us"))
        for part in parts
    ]
    head = ["part", "base us", "new us", "change"]
    if not is_pair:
        rows, head = [(row[0], row[2]) for row in rows], ["part", "us"]
    note = "each without the parts that it calls: its share of a profiled call, of the time by the clock"
    return table("Host time by part", head, rows, note=note, numbers=range(1, 4), of=of)


def memory_tables(
    base: Mapping[str, Any], new: Mapping[str, Any], *, is_pair: bool = True, of: str = ""
) -> list[Markup]:
    """Return a table of tensors saved for the backward pass and one of memory alive at the peak, where these are known."""
    found = []
    for title, head, parts, note in (
        ("Saved for the backward pass", "tensors", saved_parts(base, new), "without weights and inputs"),
        ("Alive at the peak", "line", peak_parts(base, new), "by the line that allocated it"),
    ):
        columns = [head, "base", "new", "base bytes", "new bytes", "change"]
        if [part.name for part in parts] == [BEFORE]:
            found.append(Markup("<p>{}</p>").format(_IN_GRAPHS))
            continue
        rows = [_memory_row(part) for part in parts[:_PARTS]]
        if not is_pair:
            rows, columns = [(row[0], row[2], row[4]) for row in rows], [head, "number", "bytes"]
        if rows:
            more = f"; the first {_PARTS} of {len(parts)}" if len(parts) > _PARTS else ""
            found.append(table(title, columns, rows, note=note + more, numbers=range(1, 6), of=of))
    return found


#: The text for a call in which the allocator handed out nothing.
_IN_GRAPHS = (
    "All that is alive at the peak was allocated before the call, as a CUDA graph keeps its memory between calls: another "
    "config of the model, such as triton, tells the lines."
)


def _memory_row(part: MemoryPart) -> tuple[str, ...]:
    name = joined(" ", (mono(part.name), span("soft", part.about))) if part.about else mono(part.name)
    counts = (f"{part.base:,}", f"{part.new:,}")
    sizes = (byte_words(part.base_bytes), byte_words(part.new_bytes))
    return (name, *counts, *sizes, signed(part.change / 1e6, 2, "MB"))
