"""How far an average over models would move if other models of the kind had been picked: percentile bootstrap.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. Models are drawn with replacement, with all
cells that they have: cells of one model are no independent witnesses. The interval knows nothing of what differs from run to
run but for what that adds to the scatter of the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.stats.labels import places

Numbers = npt.NDArray[np.float64]

#: Draws of an interval; its ends are then known to a tenth of its width or so.
RESAMPLES = 1000
#: Of fewer models an interval is a matter of luck: the percentile bootstrap is too narrow for a handful.
FEWEST = 5
#: 1 - confidence of the intervals.
LEVEL = 0.05
_SEED = 20_260_801


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a ratio, new over base: 1 is no change. `models` is how many were drawn from."""

    low: float
    high: float
    models: int

    @property
    def excludes_none(self) -> bool:
        """Whether the ratio 1, no change, lies outside."""
        return self.low > 1 or self.high < 1


def geomean_interval(ratios: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]) -> Interval | None:
    """Interval of the geometric mean of paired ratios, exp(mean of ln ratio); entry i is one cell of `models[i]`.

    Ratios that are not positive and finite are left out. None for fewer than 5 models. The same cells give the same interval,
    in whatever order they come.

    Raises:
        ValueError: the two differ in length.
    """
    values = np.asarray(ratios, dtype=np.float64)
    usable = np.isfinite(values) & (values > 0)
    logs = np.log(values, where=usable, out=np.full(values.shape, np.nan))
    found = _interval(logs, np.ones(values.shape), usable, models)
    return None if found is None else Interval(float(np.exp(found[0])), float(np.exp(found[1])), found[2])


def sums_interval(
    base: Sequence[float] | Numbers, new: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]
) -> Interval | None:
    """Interval of sum(new) / sum(base) over pairs, which is the ratio of two arithmetic means of the same cells.

    Pairs that are not both positive and finite are left out. None for fewer than 5 models.

    Raises:
        ValueError: the three differ in length.
    """
    before, after = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    if before.shape != after.shape:
        raise ValueError("every value of base needs one of new")
    usable = np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)
    found = _interval(after, before, usable, models)
    return None if found is None else Interval(*found)


def _interval(
    above: Numbers, below: Numbers, usable: npt.NDArray[np.bool_], models: Sequence[Any] | npt.NDArray[Any]
) -> tuple[float, float, int] | None:
    """Both averages are a sum over a sum: of logarithms over their number, or of new over base."""
    names = np.asarray(models)
    if names.shape != usable.shape:
        raise ValueError("every cell needs its model")
    owner, count = _owners(names[usable])
    if count < FEWEST:
        return None
    sums = [np.bincount(owner, values[usable], count) for values in (above, below)]
    often = _draws(count)
    # Of as many ones as there are models, the sum is their number, whichever are drawn.
    total = count if np.all(sums[1] == 1) else often @ sums[1]
    low, high = _ends(often @ sums[0] / total)
    return low, high, count


def _owners(names: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], int]:
    """Each cell's model as a number, in the order of the names, and how many there are; numbers need no sorting."""
    is_number = names.dtype.kind in "iu" and np.min(names, initial=0) >= 0
    drawn, owner = places(names) if is_number else np.unique(names, return_inverse=True)
    return owner, drawn.size


def _ends(draws: Numbers) -> tuple[float, float]:
    """The quantiles LEVEL / 2 and 1 - LEVEL / 2, between two values in proportion, as NumPy's own but without its checks."""
    ranks = np.array((LEVEL / 2, 1 - LEVEL / 2)) * (draws.size - 1)
    below = np.floor(ranks).astype(int)
    ordered = np.partition(draws, (below[0], below[0] + 1, below[1], below[1] + 1))
    found = ordered[below] + (ranks - below) * (ordered[below + 1] - ordered[below])
    return float(found[0]), float(found[1])


@lru_cache(maxsize=64)
def _draws(size: int) -> Numbers:
    """How often each model is in each draw, of shape (RESAMPLES, size): a sum over a draw is then a product.

    The same for every group of that many models: what is shown must not change from one look to the next.
    """
    drawn = np.random.default_rng(_SEED).integers(0, size, (RESAMPLES, size))
    found = np.zeros((RESAMPLES, size))
    np.add.at(found, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    found.flags.writeable = False
    return found
