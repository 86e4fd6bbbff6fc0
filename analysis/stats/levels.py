"""Describe levels of a series: changes between them, shifts that are too young to be changes, and drift."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import stdtr, stdtrit

from analysis.stats.averages import NORMAL_CONSISTENCY, Labels, Mask, Numbers
from analysis.stats.changepoints import EDGE, SHORTEST, clip_spikes, detect_rows, piece_of, welch_error
from analysis.stats.verdicts import LEVEL, false_discovery_rates

#: Smallest likelihood of a possible place of a cut, relative to the likeliest place: 1/20, as in a 95 % interval.
POSSIBLE = 0.05
#: Fewest nights of a pending shift: a single one is a spike until a second night repeats it, unless it is large.
FEWEST = 1
#: Fewest robust standard deviations, and fewest minimum effects, between a single night and the level before it.
ALONE_BEYOND, ALONE_EFFECTS = 10.0, 5.0
#: Robust standard deviations by which every night of a pending shift must be away from the level, all on one side.
EACH_BEYOND = 2.0
#: Robust standard deviations by which the median of these nights must be away, so that two nights at the edge of the noise
#: are not reported.
MEDIAN_BEYOND = 3.0


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level. `at` is the first index of the new level, which could be at `earliest` to `latest` as well.

    `before` and `after` are levels in the unit of the values, `now` is the newest level of the series. `ratio` is after over
    before, with its 95 % interval `low` to `high`. `p` is two-sided and corrected for the number of places of the series, `q`
    is the false discovery rate at which the change would just be reported among all series. `is_over` is True if any later
    level of the series is nearer to `before` than to `after`, in ln, even if the series left that level again.
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
    q: float = math.nan


@dataclass(frozen=True, slots=True)
class NewLevel:
    """A new level of the series in row `row` of table `table`.

    The level before it begins at column `start`, and the new level ends before column `stop`. `is_pending` is True while the
    new level is too young to be established.
    """

    table: int
    row: int
    change: LevelChange
    is_pending: bool
    start: int
    stop: int


def new_levels(
    tables: Sequence[Numbers], min_effect: float, first: Sequence[Mapping[int, LevelChange]] | None = None
) -> list[NewLevel]:
    """Return the new levels of many series of positive values, one row each. Trends, alerts and records all use this rule.

    A new level is a change point of `detect` or a pending shift. It differs by at least `min_effect` (relative), and the false
    discovery rate over all series with at least 10 measured values is at most 5 %. `first` has for each table the rows whose
    only possible change is pending and was judged elsewhere. These rows count among the series.
    """
    candidates = [
        level
        for at, values in enumerate(tables)
        for level in _candidates(at, values, min_effect, first[at] if first is not None else {})
    ]
    # A series without a change was tested too: it counts as a hypothesis with p = 1.
    enough = sum(int(np.sum(np.isfinite(values).sum(axis=1) >= 2 * SHORTEST)) for values in tables)
    changed = {(level.table, level.row) for level in candidates if first is None or level.row not in first[level.table]}
    p = np.array([level.change.p for level in candidates] + [1.0] * max(enough - len(changed), 0))
    rates = false_discovery_rates(p)[: len(candidates)].tolist()
    return [
        replace(level, change=replace(level.change, q=q))
        for level, q in zip(candidates, rates, strict=True)
        if q <= LEVEL and abs(math.log(level.change.ratio)) >= math.log1p(min_effect)
    ]


def _candidates(table: int, values: Numbers, min_effect: float, first: Mapping[int, LevelChange]) -> Iterator[NewLevel]:
    change_points = detect_rows(values, min_effect=min_effect)
    shifts = pending_shifts(values, change_points, min_effect=min_effect)
    for row, (cuts, shift) in enumerate(zip(change_points, shifts, strict=True)):
        if row in first:
            yield NewLevel(table, row, first[row], is_pending=True, start=0, stop=values.shape[1])
            continue
        bounds = [0, *cuts, values.shape[1]]
        for at, change in enumerate(level_changes(values[row], cuts) if cuts else ()):
            yield NewLevel(table, row, change, is_pending=False, start=bounds[at], stop=bounds[at + 2])
        if shift is not None:
            change = pending_change(values[row], shift, cuts)
            yield NewLevel(table, row, change, is_pending=True, start=bounds[-2], stop=bounds[-1])


def is_nearer(value: float, base: float, new: float) -> bool:
    """Return whether a value lies on the base's side of the middle between two levels, in ln. All three are positive."""
    return math.log(value / base) / math.log(new / base) < 0.5


def level_changes(values: Numbers, cuts: Sequence[int]) -> list[LevelChange]:
    """Describe the change points `cuts` (of `changepoints.detect`) of a series of positive values. NaN is "not measured".

    All is computed in ln and with spikes clipped. A level is the geometric mean of the nearest 20 points (`changepoints.EDGE`)
    of its side, as far as the next change point. The interval is Welch's over these points, widened for correlated nights
    (`changepoints.welch_error`). p is Welch's over the whole pieces, times the number of places n (Bonferroni), as
    `changepoints.Steps` judges it.
    """
    places, series = _logs(values)
    bounds = [0, *(int(np.searchsorted(places, cut)) for cut in cuts), series.size]
    now = float(np.exp(series[bounds[-2] :][-EDGE:].mean()))
    levels = [float(np.exp(series[start:stop].mean())) for start, stop in pairwise(bounds)]
    changes = []
    for at in range(1, len(bounds) - 1):
        change = _of_cut(series, places, (bounds[at - 1], bounds[at], bounds[at + 1]), now)
        later = [*levels[at + 1 :], now] if change.before != change.after else []
        changes.append(replace(change, is_over=any(is_nearer(level, change.before, change.after) for level in later)))
    return changes


def _of_cut(series: Numbers, places: Labels, piece: tuple[int, int, int], now: float) -> LevelChange:
    start, cut, end = piece
    old, new = series[max(start, cut - EDGE) : cut], series[cut : min(end, cut + EDGE)]
    near_old, near_new = piece_of(old), piece_of(new)
    error, freedom = welch_error(near_old, near_new)
    whole_old, whole_new = piece_of(series[start:cut]), piece_of(series[cut:end])
    p = _p(whole_new.mean - whole_old.mean, *welch_error(whole_old, whole_new)) * series.size
    first, last = _possible(old, new)
    where = (int(places[cut]), int(places[cut + first]), int(places[cut + last]))
    levels = (float(np.exp(near_old.mean)), float(np.exp(near_new.mean)), now)
    return _change(where, levels, near_new.mean - near_old.mean, error, freedom, p)


def _change(
    where: tuple[int, int, int],
    levels: tuple[float, float, float],
    distance: float,
    error: float,
    freedom: float,
    p: float,
) -> LevelChange:
    half = -float(stdtrit(freedom, LEVEL / 2)) * error
    low, high = float(np.exp(distance - half)), float(np.exp(distance + half))
    return LevelChange(*where, *levels, float(np.exp(distance)), low, high, min(p, 1.0))


def _possible(old: Numbers, new: Numbers) -> tuple[int, int]:
    """Return how far before (0 or less) and after (0 or more) its place a cut could be, in points.

    A cut at another place c leaves the sum of squares R(c), the cut itself leaves R. c is possible if its likelihood relative to
    the cut, exp(-(R(c) - R) / 2s²) with s² = R / (n - 2) for normal noise, is at least `POSSIBLE` (the region of Siegmund,
    "Confidence sets in change-point problems", International Statistical Review 56, 1988). Noise that the fit does not explain
    makes the range too narrow.
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


def pending_shifts(
    values: Numbers, change_points: Sequence[Sequence[int]], *, min_effect: float = 0.01
) -> list[int | None]:
    """Return for each row the first index of a shift at its end that is too young to be a change point, or None.

    The shift is the longest tail of 1 to 19 measured nights that stands apart from the 20 nights before it, or as many as the
    row has since the last of its `change_points` (docs/statistics.md, "Change points"). NaN and infinity mean "not measured".
    """
    starts = np.array([max(cuts, default=0) for cuts in change_points], dtype=np.int64)
    columns = np.arange(values.shape[1])
    is_current = np.isfinite(values) & (columns >= starts[:, None])
    # The newest 39 points of each row, aligned at its end, with NaN before them where there are fewer.
    width = 2 * EDGE - 1
    order = np.argsort(is_current, axis=1, kind="stable")[:, -width:]
    newest = np.where(np.take_along_axis(is_current, order, axis=1), np.take_along_axis(values, order, axis=1), np.nan)
    newest = np.pad(newest, ((0, 0), (width - newest.shape[1], 0)), constant_values=np.nan)
    shifts: list[int | None] = [None] * len(values)
    for tail in range(FEWEST, EDGE):
        for row in np.flatnonzero(_ends_shifted(newest, tail, min_effect)).tolist():
            shifts[row] = int(order[row, -tail])
    return shifts


def _ends_shifted(newest: Numbers, tail: int, min_effect: float) -> Mask:
    """Return for each row whether its last `tail` points are a shift from the 20 points before them."""
    start = newest.shape[1] - tail
    before = newest[:, start - EDGE : start]
    level = _medians(before)
    sigma = NORMAL_CONSISTENCY * _medians(np.abs(before - level[:, None]))
    distance = newest[:, start:] - level[:, None]
    middle = np.median(distance, axis=1)
    with np.errstate(invalid="ignore"):
        is_beyond = np.all(np.sign(middle)[:, None] * distance > EACH_BEYOND * sigma[:, None], axis=1)
        beyond, effects = (ALONE_BEYOND, ALONE_EFFECTS) if tail == 1 else (MEDIAN_BEYOND, 1.0)
        is_large = np.abs(middle) >= np.maximum(beyond * sigma, effects * min_effect * np.abs(level))
    is_shift: Mask = (np.isfinite(before).sum(axis=1) >= SHORTEST) & (middle != 0) & is_beyond & is_large
    return is_shift


def _medians(rows: Numbers) -> Numbers:
    """Return the median of each row without its NaN; NaN for a row of NaN. Much faster than `np.nanmedian` for short rows."""
    ordered, counts = np.sort(rows, axis=1), np.isfinite(rows).sum(axis=1)
    each = np.arange(len(rows))
    medians: Numbers = (
        ordered[each, (counts - 1) // 2] + ordered[each, np.minimum(counts // 2, rows.shape[1] - 1)]
    ) / 2
    return medians


def pending_change(values: Numbers, start: int, cuts: Sequence[int]) -> LevelChange:
    """Describe a shift that is too young to be a change point (`pending_shifts`) and begins at `start`.

    The few new points say nothing about the noise, so s is the standard deviation of the (at most 20) points before. With a
    points before and b points since, t = d / (s sqrt(1/a + 1/b)) with a - 1 degrees of freedom. p is multiplied by the number
    of tails that were tried (19).
    """
    places, series = _logs(values)
    at = int(np.searchsorted(places, start))
    since = int(np.searchsorted(places, max(cuts, default=0)))
    old, new = series[max(since, at - EDGE) : at], series[at:]
    if new.size == 1:
        new = np.log(values[places[-1:]])  # not from `series`, where it is clipped as a spike
    distance, sigma = float(new.mean() - old.mean()), float(old.std(ddof=1))
    error, freedom = sigma * float(np.sqrt(1 / old.size + 1 / new.size)), float(old.size - 1)
    p = _p(distance, error, freedom) * (EDGE - FEWEST)
    after = float(np.exp(new.mean()))
    return _change((start, start, start), (float(np.exp(old.mean())), after, after), distance, error, freedom, p)


@dataclass(frozen=True, slots=True)
class LevelDrift:
    """A drift between two levels, `before` and `now`, in the unit of the values.

    `ratio` is now over before. It is `steps`, the product of the steps' ratios, times `drift`, whose 95 % interval is `low` to
    `high`. `p` is two-sided.
    """

    before: float
    now: float
    ratio: float
    steps: float
    drift: float
    low: float
    high: float
    p: float


def level_drift(base: Numbers, newest: Numbers, steps: Sequence[LevelChange]) -> LevelDrift:
    """Return the drift from `base` to `newest`, at least two positive values each, beyond the `steps` in between.

    In ln, d = mean(newest) - mean(base) - sum of the steps. Its squared error is Welch's, widened for correlated nights
    (`changepoints.welch_error`), plus the squared error of every step, taken from its interval. The degrees of freedom are
    Welch's.
    """
    old, new = piece_of(np.log(base)), piece_of(np.log(newest))
    error, freedom = welch_error(old, new)
    of_steps = float(sum(np.log(step.ratio) for step in steps))
    # The 95 % interval of a step is 3.92 standard errors wide, as for a normal distribution.
    error = float(np.hypot(error, np.sqrt(sum((np.log(step.high / step.low) / 3.92) ** 2 for step in steps))))
    whole = new.mean - old.mean
    drift = whole - of_steps
    half = -float(stdtrit(freedom, LEVEL / 2)) * error
    return LevelDrift(
        before=float(np.exp(old.mean)),
        now=float(np.exp(new.mean)),
        ratio=float(np.exp(whole)),
        steps=float(np.exp(of_steps)),
        drift=float(np.exp(drift)),
        low=float(np.exp(drift - half)),
        high=float(np.exp(drift + half)),
        p=_p(drift, error, freedom),
    )


def _logs(values: Numbers) -> tuple[Labels, Numbers]:
    """Return the places of the measured values, and their logarithms with spikes clipped."""
    places = np.flatnonzero(np.isfinite(values))
    return places, clip_spikes(np.log(values[places])[None, :])[0]


def _p(distance: float, error: float, freedom: float) -> float:
    """Return the two-sided p of Student's t."""
    if error == 0:
        return 0.0 if distance else 1.0
    return 2 * float(stdtr(freedom, -abs(distance) / error))
