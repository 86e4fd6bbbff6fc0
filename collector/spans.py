"""Intervals that overlap: their length, and what they leave of another."""

from __future__ import annotations

from collections.abc import Iterable

#: Begin and end, in any unit.
Span = tuple[float, float]


def union_length(spans: Iterable[Span]) -> float:
    """Length of the union of half-open intervals, in the unit of its ends; an interval that ends before it starts is empty."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        begin = max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total


def merged(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return the union of intervals as far as it lies in `within`: disjoint intervals that are not empty, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        begin, stop = max(start, within[0]), min(end, within[1])
        if begin >= stop:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((begin, stop))
    return found


def gaps(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return what `merged` leaves of `within`."""
    found, reached = [], within[0]
    for begin, end in [*merged(spans, within), (within[1], within[1])]:
        if begin > reached:
            found.append((reached, begin))
        reached = end
    return found
