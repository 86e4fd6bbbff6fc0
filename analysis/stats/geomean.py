"""Averages that leave out what was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


def geomean(values: Iterable[float | None]) -> float | None:
    """Geometric mean, exp((1/n) * sum(ln x)), over the values that are there; None if none are.

    The mean for ratios (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986): the geomean of
    ratios is the ratio of geomeans, whichever side is normalised. None and NaN mean "not measured" and are left out.
    Has the unit of the values. Summed exactly, so that the order of the values does not matter.

    Raises:
        ValueError: a value is zero, negative or infinite: it has no logarithm and is no ratio.
    """
    found = present(values)
    if not all(0 < value < math.inf for value in found):
        raise ValueError("a geometric mean takes positive finite values")
    return math.exp(math.fsum(map(math.log, found)) / len(found)) if found else None


def mean(values: Iterable[float | None]) -> float | None:
    """Arithmetic mean over the values that are there, in their unit; None if none are. None and NaN are left out."""
    found = present(values)
    return math.fsum(found) / len(found) if found else None


def present(values: Iterable[float | None]) -> list[float]:
    """The values that were measured: neither None nor NaN."""
    return [value for value in values if value is not None and not math.isnan(value)]
