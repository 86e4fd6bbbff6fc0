"""A geometric mean that leaves out what was not measured, and a standard deviation that outliers do not move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

#: 1 / Phi^-1(3/4): makes the MAD of normal data estimate its standard deviation.
NORMAL_CONSISTENCY = 1.4826


def geomean(values: Iterable[float | None]) -> float | None:
    """Geometric mean, exp((1/n) * sum(ln x)), in the unit of the values. None if nothing was measured.

    The mean for ratios (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986): the geomean of ratios is
    the ratio of geomeans. None and NaN mean "not measured". Summed exactly, so that the order does not matter.

    Raises:
        ValueError: a value is zero, negative or infinite. It has no logarithm and is no ratio.
    """
    measured = [value for value in values if value is not None and not math.isnan(value)]
    if not all(0 < value < math.inf for value in measured):
        raise ValueError("a geometric mean takes positive finite values")
    return math.exp(math.fsum(map(math.log, measured)) / len(measured)) if measured else None


def robust_sigma(values: Sequence[float]) -> float:
    """Robust standard deviation, 1.4826 x the median absolute deviation from the median, in the unit of the values.

    Hampel, "The influence curve and its role in robust estimation", JASA 69 (1974). It withstands up to half of the values
    being outliers.

    Raises:
        ValueError: no values.
    """
    if len(values) == 0:
        raise ValueError("a median needs values")
    samples = np.asarray(values, dtype=np.float64)
    return NORMAL_CONSISTENCY * float(np.median(np.abs(samples - np.median(samples))))
