"""Lengths of intervals that overlap."""

from __future__ import annotations

from collections.abc import Iterable


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of half-open intervals, in the unit of its ends; an interval that ends before it starts is empty."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        begin = max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total
