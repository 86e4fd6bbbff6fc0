"""From a difference and its noise to a verdict: regressed, improved, unchanged, or not known yet.

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

#: False discoveries among what is called a change, and 1 - confidence of the intervals.
LEVEL = 0.05
#: More runs a side than this are never advised: then the noise must be lowered.
MOST_RUNS = 50


class Verdict(StrEnum):
    """What is known of one metric of one cell; `REGRESSED` is for the worse, whichever way that is for the metric."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Difference:
    """New less base of ln values, one entry per cell, with its standard error and confidence interval; NaN if unknown."""

    change: Numbers
    error: Numbers
    df: Numbers
    low: Numbers
    high: Numbers
    p: Numbers


def difference(
    change: Numbers, base_runs: Numbers, new_runs: Numbers, variance: Numbers, df: Numbers, doubt: Numbers | float = 0.0
) -> Difference:
    """Differences of means of runs under a known noise: t = d / sqrt(s² (1/Ra + 1/Rb + c)) with `df` degrees of freedom.

    The moderated t of Smyth (2004) when `variance` and `df` come from `shrinkage.moderate`. `change` is the difference of the
    sides' mean ln values, `base_runs` and `new_runs` are how many runs (never samples) each mean is of, `doubt` is c: what was
    taken from the change beforehand with an error of its own, over s² (`stats.covariates`). p is two-sided, the interval
    of 95 %.
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
    """Half the interval's width in standard errors. Cells have few different degrees of freedom: each is looked up once."""
    different, index = np.unique(df, return_inverse=True)
    return np.asarray(stdtrit(different, 1 - LEVEL / 2))[index]


def false_discovery_rates(p: Numbers) -> Numbers:
    """Benjamini-Hochberg's adjusted p over one family of cells; NaN stays NaN and counts for nothing.

    Benjamini and Hochberg, JRSS B 57 (1995); it holds under the positive dependence that a shared run brings (Benjamini and
    Yekutieli, Annals of Statistics 29 (2001)).
    """
    rates = np.full(p.shape, np.nan)
    known = np.isfinite(p)
    if known.any():
        values = p[known]
        order = np.argsort(values)
        ranks = np.arange(1, values.size + 1)
        # From the largest on: an adjusted p is never larger than that of a larger p.
        adjusted = np.minimum.accumulate((values[order] * values.size / ranks)[::-1])[::-1]
        rates[np.flatnonzero(known)[order]] = np.minimum(adjusted, 1.0)
    return rates


def judge(tested: Difference, q: Numbers, smallest: float, *, lower_is_better: bool) -> npt.NDArray[np.str_]:
    """The word of a `Verdict` per cell, given the adjusted p of its family and the smallest relative change that matters.

    - a change: q is at most 0.05 and the change itself at least `smallest` (0.02 is 2 %)
    - `unchanged`: the 95 % interval lies within plus or minus `smallest`, so that a change that matters is ruled out
      (two one-sided tests at 2.5 %, Schuirmann 1987)
    - else `inconclusive`, which is also the verdict where nothing is known of the noise
    """
    limit = np.log1p(smallest)
    with np.errstate(invalid="ignore"):
        ruled_out = (tested.low >= -limit) & (tested.high <= limit)
        changed = (q <= LEVEL) & (np.abs(tested.change) >= limit)
        worse = tested.change > 0 if lower_is_better else tested.change < 0
    words = Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value
    return np.select([changed & worse, changed, ruled_out], words, Verdict.INCONCLUSIVE.value)


def words_where(known: Mask, words: npt.NDArray[Any]) -> Words:
    """The words where they are known, None elsewhere."""
    known_words = words.astype(object)
    known_words[~known] = None
    return known_words


def further_runs(tested: Difference, base_runs: Numbers, new_runs: Numbers, smallest: float) -> Numbers:
    """Runs to add to each side until the interval is no wider than the change, or the smallest one that matters, per cell.

    Then a change of less than half of `smallest` is shown to be none that matters, and one of `smallest` or more stands four
    standard errors from nothing. The noise is taken to stay what it is. NaN where it is not known, infinity where 50 runs
    would not do; 0 where the interval is that narrow already.
    """
    limit = np.fmax(np.log1p(smallest), np.abs(tested.change)) / 2
    variance = tested.error**2 / (1 / base_runs + 1 / new_runs)

    def half(more: Numbers) -> Numbers:
        error = np.sqrt(variance * (1 / (base_runs + more) + 1 / (new_runs + more)))
        return _half_width(tested.df + 2 * more) * error

    # The width only falls with the runs: halving finds the first number that will do.
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
