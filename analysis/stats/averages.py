"""Geometric means that leave out missing values, and standard deviations that outliers do not move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
#: Numbers of groups, from 0.
Labels = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
#: Texts, None where there is no text.
Words = NDArray[np.object_]


#: 1 / Phi^-1(3/4): makes the MAD of normal data estimate its standard deviation.
NORMAL_CONSISTENCY = 1.4826
#: Fewest changes between neighbours from which a scatter is estimated.
_FEWEST_MOVES = 5


def geomean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean, exp((1/n) * sum(ln x)), in the unit of the values. None if nothing was measured.

    It is the mean for ratios (Fleming and Wallace, "How not to lie with statistics", CACM 29(3), 1986): the geomean of ratios
    is the ratio of geomeans. None and NaN mean "not measured". The sum is exact, so that the order does not matter.
    Raise `ValueError` if a value is zero, negative or infinite: it has no finite logarithm and is no ratio.
    """
    measured = [value for value in values if value is not None and not math.isnan(value)]
    if not all(0 < value < math.inf for value in measured):
        raise ValueError("a geometric mean takes positive finite values")
    return math.exp(math.fsum(map(math.log, measured)) / len(measured)) if measured else None


def chained(values: Numbers, *, is_mean: bool = False) -> tuple[Numbers, Labels]:
    """Return the geometric (or arithmetic) mean of each column, chained so that rows which come and go do not move it.

    From one column to the next the mean changes as it does over the rows that both columns have. In each chain the column with
    the most values, or the last of several, has its plain mean. Between columns without a common row the chain breaks.

    Args:
        values: positive numbers; NaN is "not measured". Each column has at least one value.

    Returns:
        The means, and for each column the number of its unbroken chain, from 0.
    """
    has = np.isfinite(values)
    both = has[:, 1:] & has[:, :-1]
    known = values if is_mean else np.log(values)
    old, new = (np.where(both, part, 0.0).sum(axis=0) for part in (known[:, :-1], known[:, 1:]))
    count = both.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(count > 0, np.log(new / old) if is_mean else (new - old) / count, 0.0)
    filled = has.sum(axis=0)
    own = np.where(has, known, 0.0).sum(axis=0) / filled
    chain = np.concatenate(([0], np.cumsum(count == 0)))
    way = np.concatenate(([0.0], np.cumsum(steps)))
    fullest = np.lexsort((filled, chain))[np.searchsorted(chain, chain, side="right") - 1]
    return np.exp((np.log(own) if is_mean else own)[fullest] + way - way[fullest]), chain


def robust_sigma(values: Sequence[float] | Numbers) -> float:
    """Return the robust standard deviation, 1.4826 x the median absolute deviation from the median, in the unit of the values.

    Hampel, "The influence curve and its role in robust estimation", JASA 69 (1974). It withstands up to half of the values
    being outliers.
    """
    return NORMAL_CONSISTENCY * float(np.median(np.abs(np.asarray(values) - np.median(values))))


def scatter(values: Numbers) -> float:
    """Return the usual scatter of a series of positive values, as a standard deviation of their ln; 0 for fewer than six.

    It comes from the changes between neighbours, whose variance is twice that of the values. A few large steps do not move it.
    """
    moves = np.diff(np.log(values))
    usual = float(np.median(np.abs(moves))) if len(moves) >= _FEWEST_MOVES else 0.0
    return NORMAL_CONSISTENCY * usual / math.sqrt(2)
