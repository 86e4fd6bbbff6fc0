"""What is known of a change point: the levels on both sides, how far apart they are, how sure that is, and where it can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from analysis.stats.pending import FEWEST
from analysis.stats.pieces import piece_of, welch_error
from analysis.stats.spikes import clip_spikes
from analysis.stats.steps import EDGE
from analysis.stats.verdicts import LEVEL

Numbers = npt.NDArray[np.float64]

#: Places of a cut count as possible while they are this likely or more, the likeliest being 1: 1/20, as of a 95 % interval.
POSSIBLE = 0.05


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level. `at` is the first index of the new level, `earliest` and `latest` where that could be as well.

    `before` and `after` are levels in the unit of the values, `now` the newest level of the series; `ratio` is after over
    before, with its 95 % interval `low` to `high`. `p` is two-sided and corrected for the places of the series. `is_over` says
    that some later level of the series is nearer to the one before again, in ln, whatever came after that.
    """

    at: int
    earliest: int
    latest: int
    before: float
    after: float
    now: float
    ratio: float
    low: float
    high: float
    p: float
    is_over: bool = False


def is_nearer(value: float, base: float, new: float) -> bool:
    """Whether a value lies on the base's side of the middle between two levels, in ln (all of them positive)."""
    return math.log(value / base) / math.log(new / base) < 0.5


def level_changes(values: Numbers, cuts: Sequence[int]) -> list[LevelChange]:
    """The change points `cuts` (of `changepoints.detect`) of a series of positive values, with all that is known of each.

    In ln and with spikes clipped. A level is the geometric mean of the nearest 20 points (`steps.EDGE`) of its side, as far
    as the next change point; interval by Welch's t over these, widened for correlated nights (`pieces.welch_error`). p is
    Welch's over the whole pieces, times the number of places n (Bonferroni), as `steps` judges it. NaN is "not measured".

    Raises:
        ValueError: a cut that is not a measured point, or that leaves a piece of less than two points.
    """
    places, series = _logs(values)
    bounds = [0, *(int(np.searchsorted(places, cut)) for cut in cuts), series.size]
    if any(places[at] != cut for at, cut in zip(bounds[1:-1], cuts, strict=True)) or np.min(np.diff(bounds)) < 2:
        raise ValueError("change points are measured points, with two points of a level at least")
    now = float(np.exp(series[bounds[-2] :][-EDGE:].mean()))
    levels = [float(np.exp(series[start:stop].mean())) for start, stop in pairwise(bounds)]
    found = []
    for at in range(1, len(bounds) - 1):
        one = _of_cut(series, places, (bounds[at - 1], bounds[at], bounds[at + 1]), now)
        later = [*levels[at + 1 :], now] if one.before != one.after else []
        found.append(replace(one, is_over=any(is_nearer(level, one.before, one.after) for level in later)))
    return found


def pending_change(values: Numbers, start: int, cuts: Sequence[int]) -> LevelChange:
    """The same for a shift that is too young to be a change point (`pending.pending`), beginning at `start`.

    The few new points say nothing of the noise: it is that of the 20 points before, s. t = d / (s sqrt(1/a + 1/b)) with a - 1
    degrees of freedom, and p times the number of tails that were tried (18).
    """
    places, series = _logs(values)
    at = int(np.searchsorted(places, start))
    since = int(np.searchsorted(places, max(cuts, default=0)))
    old, new = series[max(since, at - EDGE) : at], series[at:]
    distance, sigma = float(new.mean() - old.mean()), float(old.std(ddof=1))
    error, freedom = sigma * float(np.sqrt(1 / old.size + 1 / new.size)), float(old.size - 1)
    p = _p(distance, error, freedom) * (EDGE - FEWEST)
    after = float(np.exp(new.mean()))
    return _change((start, start, start), float(np.exp(old.mean())), after, after, distance, error, freedom, p)


def _of_cut(series: Numbers, places: npt.NDArray[np.intp], piece: tuple[int, int, int], now: float) -> LevelChange:
    start, cut, end = piece
    old, new = series[max(start, cut - EDGE) : cut], series[cut : min(end, cut + EDGE)]
    near_old, near_new = piece_of(old), piece_of(new)
    error, freedom = welch_error(near_old, near_new)
    whole_old, whole_new = piece_of(series[start:cut]), piece_of(series[cut:end])
    p = _p(whole_new.mean - whole_old.mean, *welch_error(whole_old, whole_new)) * series.size
    first, last = _possible(old, new)
    where = (int(places[cut]), int(places[cut + first]), int(places[cut + last]))
    levels = (float(np.exp(near_old.mean)), float(np.exp(near_new.mean)))
    return _change(where, *levels, now, near_new.mean - near_old.mean, error, freedom, p)


def _change(
    where: tuple[int, int, int],
    before: float,
    after: float,
    now: float,
    distance: float,
    error: float,
    freedom: float,
    p: float,
) -> LevelChange:
    half = -float(stdtrit(freedom, LEVEL / 2)) * error
    low, high = float(np.exp(distance - half)), float(np.exp(distance + half))
    return LevelChange(*where, before, after, now, float(np.exp(distance)), low, high, min(p, 1.0))


def _possible(old: Numbers, new: Numbers) -> tuple[int, int]:
    """How far before (0 or less) and after (0 or more) its place a cut could be, in points.

    A cut elsewhere in these points leaves the sum of squares R(c); it is possible while exp(-(R(c) - R) / 2s²) is
    `POSSIBLE` at least, R being that of the cut and s² = R / (n - 2): its likelihood, relative to that of the cut, for normal
    noise (the region of Siegmund, "Confidence sets in change-point problems", International Statistical Review 56, 1988).
    Noise that the fit does not explain makes it too narrow.
    """
    points = np.concatenate((old, new))
    count, centred = points.size, points - points.mean()
    sums = np.cumsum(centred)[:-1]
    sizes = np.arange(1, count)
    left = float(centred @ centred) - sums**2 / sizes - sums**2 / (count - sizes)
    here = old.size - 1
    if count <= 2 or left[here] <= 0:
        return 0, 0
    excess = (left - left[here]) / (left[here] / (count - 2))
    possible = np.flatnonzero(excess <= -2 * np.log(POSSIBLE))
    return min(int(possible[0]) - here, 0), max(int(possible[-1]) - here, 0)


def _logs(values: Numbers) -> tuple[npt.NDArray[np.intp], Numbers]:
    places = np.flatnonzero(np.isfinite(values))
    return places, clip_spikes(np.log(values[places]))


def _p(distance: float, error: float, freedom: float) -> float:
    if error == 0:
        return 0.0 if distance else 1.0
    return 2 * float(stdtr(freedom, -abs(distance) / error))
