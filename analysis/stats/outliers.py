"""Single runs apart from their neighbours: second modes of a program, and heavy tails, which no variance describes.

A process may choose other kernels, or other memory, and be 4 % slower than the processes before and after it. The next process
is not. So a value that differs in one run is no change while runs of these cells have differed by as much before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import comb, stdtrit

from analysis.stats.arrays import Labels, Mask, Numbers
from analysis.stats.averages import NORMAL_CONSISTENCY
from analysis.stats.shrinkage import fit_prior, moderate

#: Runs, a run and its neighbours, of which the median is the level: a step leaves no run apart from it.
WINDOW = 5
#: A run counts for a change if it was apart by this much of it, at least and at most.
LEAST, MOST = 0.75, 2.0
#: The earlier side is no single run apart from those before it, of which so many are looked at and at least so many needed, if it
#: is apart by less than this part of a change. Of nine runs with a mode in 15 % half are in that mode in 0.6 % of cases.
_BEFORE, _FEWEST_BEFORE, _AMONG = 9, 5, 0.5
#: Runs of a side that are looked at: of more, some apart change the mean by less than what matters.
_MOST_RUNS = 10.0
#: The efficiency of a median distance as an estimate of noise (Rousseeuw and Croux, Journal of the American Statistical
#: Association 88, 1993), and the smallest one.
MEDIAN_EFFICIENCY, _FLOOR = 0.37, 0.001
#: Two modes: values of each, the gap between them (relative, and over the scatter around them), changes from one to the other.
_FEWEST_OF_MODE, _LEAST_GAP, _GAP, _TURNS = 2, 0.01, 5.0, 3
#: A change that single runs are sure to make counts as so many standard errors.
_LEAST_SCORE = 0.5


@dataclass(frozen=True, slots=True)
class SideRuns:
    """How many runs a side has of each cell, and whether each of them shows at least half of the change."""

    count: Numbers
    agree: Mask


@dataclass(frozen=True, slots=True)
class Tail:
    """Runs apart from their neighbours: their distances over the usual one of their series, sorted, and these (`scale`, ln).

    `apart` is the distance (ln) of the earlier side from the runs before it, NaN where it is not known.
    """

    distances: Numbers
    scale: Numbers
    apart: Numbers

    def chance(self, change: Numbers, earlier: SideRuns, later: SideRuns) -> Numbers:
        """Return how likely single runs alone make a change of ln from an earlier to a later side; 0 where none was as far apart.

        If k of n runs were as far apart, all R runs of a side are with a chance of (k / n)^R. Where not all of them show the
        change, m of R make it if each is apart by R / m of it: binomial(R, m) (k / n)^m, summed over m. The earlier side is
        left out where the runs before it show that it is not the one: by half of the change at most it is apart towards the
        other side.
        """
        size = np.abs(change) / self.scale
        size = np.where(np.isfinite(size), size, 0.0)
        with np.errstate(invalid="ignore"):
            is_among = -np.sign(change) * self.apart < _AMONG * np.abs(change)
        of_earlier, of_later = (self._chance_of_side(size, side) for side in (earlier, later))
        return np.minimum(np.where(is_among, 0.0, of_earlier) + of_later, 1.0)

    def _chance_of_side(self, size: Numbers, side: SideRuns) -> Numbers:
        """How likely some of a side's runs move its mean by `size`, in usual distances."""
        count = np.clip(np.nan_to_num(side.count, nan=1.0), 1.0, _MOST_RUNS)
        chance = np.zeros(len(size))
        for apart in range(1, int(count.max(initial=0)) + 1):
            needed = size * count / apart
            least, most = (np.searchsorted(self.distances, part * needed) for part in (LEAST, MOST))
            share = (most - least) / max(len(self.distances), 1)
            possible = (apart == count) | ((apart < count) & ~side.agree)
            chance += np.where(possible, comb(count, apart) * share**apart, 0.0)
        return chance


def distances_from_neighbours(values: Numbers, series: Labels) -> tuple[Numbers, Mask]:
    """Return the distance of each value from the median of the five around it, and whether its series has as many.

    `values` are in the order of time, one series after the other. At an end these are the five next to the end.
    """
    if len(values) < WINDOW:
        return np.zeros(len(values)), np.zeros(len(values), dtype=bool)
    medians = np.median(sliding_window_view(values, WINDOW), axis=1)
    index = np.arange(len(values))
    starts = np.maximum.accumulate(np.where(np.diff(series, prepend=-1) != 0, index, 0))
    sizes = np.bincount(series)[series]
    first = np.clip(index - WINDOW // 2, starts, np.maximum(starts + sizes - WINDOW, starts))
    known = sizes >= WINDOW
    return np.where(known, values - medians[np.minimum(first, len(medians) - 1)], 0.0), known


def distances_from_before(values: Numbers, series: Labels, is_earlier: Mask) -> Numbers:
    """Return the distance of each value of the earlier side from the median of the nine before the side; NaN for other values.

    `values` are in the order of time, one series after the other. NaN also where there are fewer than five.
    """
    found = np.full(len(values), np.nan)
    at = np.flatnonzero(is_earlier)
    if not len(at):
        return found
    _, of_series = np.unique(series[at], return_inverse=True)
    first = at[np.searchsorted(of_series, np.arange(of_series.max() + 1))]
    before = first[:, None] - np.arange(1, _BEFORE + 1)
    is_there = (before >= 0) & (series[np.maximum(before, 0)] == series[first][:, None])
    enough = is_there.sum(axis=1) >= _FEWEST_BEFORE
    medians = np.full(len(first), np.nan)
    medians[enough] = np.nanmedian(np.where(is_there, values[np.maximum(before, 0)], np.nan)[enough], axis=1)
    found[at] = values[at] - medians[of_series]
    return found


def tail_of(distances: Numbers, owners: Labels, count: int) -> Tail:
    """Return the tail of runs of the owners 0 to count - 1, by the median distance of each, moderated by those of the others.

    Where the earlier side stands is not known (`Tail.apart`).
    """
    runs = np.bincount(owners, minlength=count).astype(np.float64)
    scale = np.full(count, np.nan)
    for owner in np.flatnonzero(runs).tolist():
        scale[owner] = NORMAL_CONSISTENCY * float(np.median(np.abs(distances[owners == owner])))
    df = MEDIAN_EFFICIENCY * runs
    moderated = np.sqrt(moderate(scale**2, df, fit_prior(scale**2, df))[0])
    scale = np.fmax(moderated, _FLOOR)
    return Tail(np.sort(np.abs(distances) / scale[owners]), scale, np.full(count, np.nan))


def two_modes(values: Numbers) -> tuple[float, float] | None:
    """Return both levels of a series of ln values that goes to and fro between two, over the more frequent one; None for others.

    The levels lie on both sides of the widest gap. It is 1 % at least and five times the distance of the values from their
    level, each level has two values at least, and the series changes its level three times: a step does so once.
    """
    values = values[np.isfinite(values)]
    if len(values) < 2 * _FEWEST_OF_MODE:
        return None
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    at = int(np.argmax(gaps)) + 1
    if gaps[at - 1] < np.log1p(_LEAST_GAP):
        return None
    is_high = values >= ordered[at]
    sides = values[~is_high], values[is_high]
    apart = np.concatenate([side - np.mean(side) for side in sides])
    is_wide = gaps[at - 1] >= _GAP * float(np.std(apart))
    turns = int(np.sum(is_high[1:] != is_high[:-1]))
    if not is_wide or min(map(len, sides)) < _FEWEST_OF_MODE or turns < _TURNS:
        return None
    usual = float(np.mean(max(sides, key=len)))
    low, high = (float(np.exp(np.mean(side) - usual)) for side in sides)
    return low, high


def wider_error(change: Numbers, error: Numbers, df: Numbers, chance: Numbers) -> Numbers:
    """Return the standard error under which a change is as likely as `chance`, where that is wider than `error`.

    Then interval and p agree with it: the change over the error is the quantile of Student's t with `df` degrees of freedom.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.maximum(-stdtrit(df, np.clip(chance, 1e-300, 1) / 2), _LEAST_SCORE)
        wider: Numbers = np.fmax(error, np.where(chance > 0, np.abs(change) / score, 0.0))
    return wider
