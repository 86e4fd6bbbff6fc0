"""What the host does in a call, and which tensors take the memory, as tables: base beside new, the largest change first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from analysis.compare.host_parts import host_parts
from analysis.compare.memory_changes import MemoryPart, byte_words, peak_parts, saved_parts
from analysis.elements.markup import joined, mono, span, table
from analysis.elements.wording import signed

#: Groups of tensors, and lines that allocated, that a table names.
_PARTS = 10


def host_table(base: Mapping[str, Any], new: Mapping[str, Any], *, is_pair: bool = True, of: str = "") -> Markup:
    """Return the host's time by part, in microseconds, from two measurements' details; of new alone where there is no pair.

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
    note = "of one compiled call under the profiler, each without the parts that it calls"
    return table("Host time by part", head, rows, note=note, numbers=range(1, 4), of=of)


def memory_tables(
    base: Mapping[str, Any], new: Mapping[str, Any], *, is_pair: bool = True, of: str = ""
) -> list[Markup]:
    """Return a table of what is saved for the backward pass, and one of what is alive at the peak, where these are known."""
    found = []
    for title, head, parts, note in (
        ("Saved for the backward pass", "tensors", saved_parts(base, new), "without weights and inputs"),
        ("Alive at the peak", "line", peak_parts(base, new), "by the line that allocated it"),
    ):
        columns = [head, "base", "new", "base bytes", "new bytes", "change"]
        rows = [_row(part) for part in parts[:_PARTS]]
        if not is_pair:
            rows, columns = [(row[0], row[2], row[4]) for row in rows], [head, "number", "bytes"]
        if rows:
            more = f"; the first {_PARTS} of {len(parts)}" if len(parts) > _PARTS else ""
            found.append(table(title, columns, rows, note=note + more, numbers=range(1, 6), of=of))
    return found


def _row(part: MemoryPart) -> tuple[str, ...]:
    name = joined(" ", (mono(part.name), span("soft", part.about))) if part.about else mono(part.name)
    counts = (f"{part.base:,}", f"{part.new:,}")
    sizes = (byte_words(part.base_bytes), byte_words(part.new_bytes))
    return (name, *counts, *sizes, signed(part.change / 1e6, 2, "MB"))
