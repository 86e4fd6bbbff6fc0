"""Intervals of averages over models by percentile bootstrap: how far they would move with other models of the kind.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. Models are drawn with replacement, with all
their cells, since cells of one model are not independent. Noise from run to run enters only as scatter of the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.stats.arrays import Mask, Numbers
from analysis.stats.verdicts import LEVEL

#: Draws of an interval. Its ends are then known to about a tenth of its width.
RESAMPLES = 1000
#: Fewer models have no interval: the percentile bootstrap is too narrow for a handful.
FEWEST = 5
_SEED = 20_260_801


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a ratio, new over base: 1 is no change. `models` is how many were drawn from."""

    low: float
    high: float
    models: int


def geomean_interval(ratios: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]) -> Interval | None:
    """Interval of the geometric mean of paired ratios, exp(mean of ln ratio); entry i is one cell of `models[i]`.

    Ratios that are not positive and finite are left out. None for fewer than 5 models. The same cells give the same interval,
    in whatever order they come.
    """
    values = np.asarray(ratios, dtype=np.float64)
    usable = np.isfinite(values) & (values > 0)
    logs = np.log(values, where=usable, out=np.full(values.shape, np.nan))
    ends = _interval(logs, np.ones(values.shape), usable, models)
    return None if ends is None else Interval(float(np.exp(ends[0])), float(np.exp(ends[1])), ends[2])


def sums_interval(
    base: Sequence[float] | Numbers, new: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]
) -> Interval | None:
    """Interval of sum(new) / sum(base) over pairs, which is the ratio of two arithmetic means of the same cells.

    Pairs that are not both positive and finite are left out. None for fewer than 5 models.
    """
    before, after = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    usable = np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)
    ends = _interval(after, before, usable, models)
    return None if ends is None else Interval(*ends)


def _interval(
    above: Numbers, below: Numbers, usable: Mask, models: Sequence[Any] | npt.NDArray[Any]
) -> tuple[float, float, int] | None:
    """Both averages are a sum over a sum: of logarithms over their number, or of new over base."""
    drawn, owner = np.unique(np.asarray(models)[usable], return_inverse=True)
    count = drawn.size
    if count < FEWEST:
        return None
    sums = [np.bincount(owner, values[usable], count) for values in (above, below)]
    often = _draws(count)
    # Of as many ones as there are models, the sum is their number, whichever are drawn.
    total = count if np.all(sums[1] == 1) else often @ sums[1]
    low, high = np.quantile(often @ sums[0] / total, (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high), count


@lru_cache(maxsize=64)
def _draws(size: int) -> Numbers:
    """How often each model is in each draw, of shape (RESAMPLES, size). A sum over a draw is then a product.

    The same for every group of that many models, so that a page shows the same numbers each time.
    """
    drawn = np.random.default_rng(_SEED).integers(0, size, (RESAMPLES, size))
    often = np.zeros((RESAMPLES, size))
    np.add.at(often, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    often.flags.writeable = False
    return often
