"""Turn a difference and its noise into a verdict: regressed, improved, unchanged or inconclusive.

Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. Models are drawn with replacement, with all
their cells, since cells of one model are not independent. Noise from run to run enters only as scatter of the models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from analysis.stats.averages import Mask, Numbers, Words

#: Share of false discoveries among the reported changes, and 1 - confidence of the intervals.
LEVEL = 0.05
#: Most runs a side that are ever advised. Where more would be needed, the noise must be lowered.
MOST_RUNS = 50


class Verdict(StrEnum):
    """Verdict on one metric of one cell. `REGRESSED` is a change for the worse, be it upwards or downwards."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences of ln values, new minus base, one entry per cell, with standard errors and intervals; NaN if unknown."""

    change: Numbers
    error: Numbers
    df: Numbers
    low: Numbers
    high: Numbers
    p: Numbers


def difference(
    change: Numbers, base_runs: Numbers, new_runs: Numbers, variance: Numbers, df: Numbers, doubt: Numbers | float = 0.0
) -> Difference:
    """Test differences of means of runs under a known noise: t = d / sqrt(s² (1/Ra + 1/Rb + c)) with `df` degrees of freedom.

    This is the moderated t of Smyth (2004) if `variance` and `df` come from `run_noise.moderate`. `change` is the difference
    of the sides' mean ln values, `base_runs` and `new_runs` are the numbers of runs (never samples) in each mean. `doubt` is c:
    the variance of the adjustment that was subtracted from the change beforehand, over s² (`compare.adjustment`). p is
    two-sided, the interval has 95 %.
    """
    return with_error(change, np.sqrt(variance * (1 / base_runs + 1 / new_runs + doubt)), df)


def with_error(change: Numbers, error: Numbers, df: Numbers) -> Difference:
    """Return differences with a known standard error and its degrees of freedom."""
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(error > 0, np.abs(change) / error, np.where(change == 0, 0.0, np.inf))
        known = np.isfinite(change) & np.isfinite(error) & (df > 0)
        p = np.where(known, 2 * stdtr(df, -score), np.nan)
        half = np.where(known, _half_width(df) * error, np.nan)
    return Difference(change, error, df, change - half, change + half, p)


def _half_width(df: Numbers) -> Numbers:
    """Return half the interval's width in standard errors. Few degrees of freedom differ, so that each is computed once."""
    different, index = np.unique(df, return_inverse=True)
    return np.asarray(stdtrit(different, 1 - LEVEL / 2))[index]


def false_discovery_rates(p: Numbers) -> Numbers:
    """Return Benjamini-Hochberg's adjusted p over one family of cells; NaN stays NaN and is not counted.

    Benjamini and Hochberg, JRSS B 57 (1995); it holds under the positive dependence that a shared run brings (Benjamini and
    Yekutieli, Annals of Statistics 29 (2001)).
    """
    rates = np.full(p.shape, np.nan)
    known = np.isfinite(p)
    if known.any():
        values = p[known]
        order = np.argsort(values)
        ranks = np.arange(1, values.size + 1)
        # From the largest p on: an adjusted p is never larger than the adjusted value of a larger p.
        adjusted = np.minimum.accumulate((values[order] * values.size / ranks)[::-1])[::-1]
        rates[np.flatnonzero(known)[order]] = np.minimum(adjusted, 1.0)
    return rates


def judge(tested: Difference, q: Numbers, smallest: float, *, lower_is_better: bool) -> npt.NDArray[np.str_]:
    """Return the word of a `Verdict` per cell, from the adjusted p of its family and the smallest relative change that matters.

    - `regressed` or `improved`: q is at most 0.05 and the change itself at least `smallest` (0.02 is 2 %)
    - `unchanged`: the 95 % interval lies within plus or minus `smallest`, so that a change that matters is ruled out
      (two one-sided tests at 2.5 %, Schuirmann 1987)
    - else `inconclusive`, which is also the verdict where the noise is not known
    """
    limit = np.log1p(smallest)
    with np.errstate(invalid="ignore"):
        ruled_out = (tested.low >= -limit) & (tested.high <= limit)
        changed = (q <= LEVEL) & (np.abs(tested.change) >= limit)
        worse = tested.change > 0 if lower_is_better else tested.change < 0
    words = Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value
    return np.select([changed & worse, changed, ruled_out], words, Verdict.INCONCLUSIVE.value)


def words_where(known: Mask, words: npt.NDArray[Any]) -> Words:
    """Return the words where `known` is True, None elsewhere."""
    known_words = words.astype(object)
    known_words[~known] = None
    return known_words


def further_runs(tested: Difference, base_runs: Numbers, new_runs: Numbers, smallest: float) -> Numbers:
    """Return how many runs to add to each side, per cell, until the interval is no wider than the change or `smallest`.

    The larger one of the two counts. Then a change of less than half of `smallest` is shown not to matter, and a change of
    `smallest` or more is four standard errors from zero. The noise is assumed to stay as it is. NaN where the noise is not
    known, infinity where 50 more runs would not be enough, 0 where the interval is that narrow already.
    """
    limit = np.fmax(np.log1p(smallest), np.abs(tested.change)) / 2
    variance = tested.error**2 / (1 / base_runs + 1 / new_runs)

    def half(more: Numbers) -> Numbers:
        error = np.sqrt(variance * (1 / (base_runs + more) + 1 / (new_runs + more)))
        return _half_width(tested.df + 2 * more) * error

    # The width only falls with the number of runs, so that halving finds the smallest number that is enough.
    low, high = np.full(tested.change.shape, -1.0), np.full(tested.change.shape, MOST_RUNS + 1.0)
    with np.errstate(invalid="ignore"):
        while np.any(high - low > 1):
            middle = np.where(high - low > 1, np.floor((low + high) / 2), high)
            enough = half(middle) <= limit
            high, low = np.where(enough, middle, high), np.where(enough | (high - low <= 1), low, middle)
    needed = np.where(high > MOST_RUNS, np.inf, high)
    return np.where(np.isfinite(variance) & (tested.df > 0), needed, np.nan)


#: Draws of an interval. Its ends are then known to about a tenth of its width.
RESAMPLES = 1000
#: Fewest models that have an interval: the percentile bootstrap is too narrow for a handful.
FEWEST = 5
_SEED = 20_260_801


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval of a ratio, new over base: 1 is no change. `models` is the number of models to draw from."""

    low: float
    high: float
    models: int


def geomean_interval(ratios: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]) -> Interval | None:
    """Return the interval of the geometric mean of paired ratios, exp(mean of ln ratio); entry i is one cell of `models[i]`.

    Ratios that are not positive and finite are left out. None for fewer than 5 models. The order of the cells does not change
    the interval.
    """
    values = np.asarray(ratios, dtype=np.float64)
    usable = np.isfinite(values) & (values > 0)
    logs = np.log(values, where=usable, out=np.full(values.shape, np.nan))
    ends = _interval(logs, np.ones(values.shape), usable, models)
    return None if ends is None else Interval(float(np.exp(ends[0])), float(np.exp(ends[1])), ends[2])


def sums_interval(
    base: Sequence[float] | Numbers, new: Sequence[float] | Numbers, models: Sequence[Any] | npt.NDArray[Any]
) -> Interval | None:
    """Return the interval of sum(new) / sum(base) over pairs, which is the ratio of two arithmetic means of the same cells.

    Pairs that are not both positive and finite are left out. None for fewer than 5 models.
    """
    before, after = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    usable = np.isfinite(before) & np.isfinite(after) & (before > 0) & (after > 0)
    ends = _interval(after, before, usable, models)
    return None if ends is None else Interval(*ends)


def _interval(
    above: Numbers, below: Numbers, usable: Mask, models: Sequence[Any] | npt.NDArray[Any]
) -> tuple[float, float, int] | None:
    """Return the ends of the 95 % interval of sum(above) / sum(below), and the number of models; None for fewer than 5.

    Both averages are such a quotient: a sum of logarithms over their number, or a sum of new over a sum of base.
    """
    drawn, owner = np.unique(np.asarray(models)[usable], return_inverse=True)
    count = drawn.size
    if count < FEWEST:
        return None
    sums = [np.bincount(owner, values[usable], count) for values in (above, below)]
    often = _draws(count)
    # If each model has the weight 1, the total of every draw is the number of models.
    total = count if np.all(sums[1] == 1) else often @ sums[1]
    low, high = np.quantile(often @ sums[0] / total, (LEVEL / 2, 1 - LEVEL / 2))
    return float(low), float(high), count


@lru_cache(maxsize=64)
def _draws(size: int) -> Numbers:
    """Return how often each model is in each draw, of shape (RESAMPLES, size). A sum over a draw is then a product.

    The draws are the same for every group of `size` models, so that a page shows the same numbers each time.
    """
    drawn = np.random.default_rng(_SEED).integers(0, size, (RESAMPLES, size))
    often = np.zeros((RESAMPLES, size))
    np.add.at(often, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    often.flags.writeable = False
    return often
