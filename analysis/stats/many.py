"""`detect` and `pending` for many series at once: the same answers, one vector operation for all instead of one for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.stats.changepoints import SHORTEST
from analysis.stats.partition import cut_price
from analysis.stats.pending import AWAY, FEWEST, MEDIAN_AWAY, pending
from analysis.stats.spikes import LIMIT, MEAN_CONSISTENCY, WIDTH
from analysis.stats.spread import NORMAL_CONSISTENCY
from analysis.stats.steps import EDGE, Steps

Numbers = npt.NDArray[np.float64]

#: Series that are cut together: their costs then fit a core's own cache.
_TOGETHER = 64


def detect_many(values: Numbers, *, min_effect: float = 0.01) -> list[list[int]]:
    """What `changepoints.detect` finds in each row of `values`, up to rounding. NaN and infinity mean "not measured".

    Raises:
        ValueError: values that are not rows of numbers.
    """
    if values.ndim != 2:
        raise ValueError("many series are rows of numbers")
    measured = np.isfinite(values)
    found: list[list[int]] = [[] for _ in range(len(values))]
    counts = measured.sum(axis=1)
    for count in np.unique(counts[counts >= 2 * SHORTEST]).tolist():
        rows = np.flatnonzero(counts == count)
        places = np.nonzero(measured[rows])[1].reshape(len(rows), count)
        series = np.take_along_axis(values[rows], places, axis=1)
        for at, cuts in _of_one_length(series, min_effect):
            found[rows[at]] = places[at][cuts].tolist()
    return found


def pending_many(values: Numbers, found: Sequence[Sequence[int]], *, min_effect: float = 0.01) -> list[int | None]:
    """What `pending.pending` says of each row of `values`, of which `found` holds the change points."""
    starts = [max(cuts, default=0) for cuts in found]
    current = np.isfinite(values) & (np.arange(values.shape[1]) >= np.array(starts, dtype=np.int64)[:, None])
    width = 2 * EDGE - 1
    is_long = current.sum(axis=1) >= width
    answers: list[int | None] = [
        None if whole else pending(row, cuts, min_effect=min_effect)
        for row, cuts, whole in zip(values, found, is_long, strict=True)
    ]
    rows = np.flatnonzero(is_long)
    if len(rows):
        # The newest points of each row come first once unmeasured ones are put last.
        places = np.argsort(~current[rows][:, ::-1], axis=1, kind="stable")[:, :width]
        places = values.shape[1] - 1 - places[:, ::-1]
        for at, tail in _longest_tails(np.take_along_axis(values[rows], places, axis=1), min_effect):
            answers[int(rows[at])] = int(places[at, width - tail])
    return answers


def _longest_tails(newest: Numbers, min_effect: float) -> list[tuple[int, int]]:
    """Rows that end with a pending shift, and of how many points; each has the 20 before the longest tail."""
    tails = np.zeros(len(newest), dtype=np.int64)
    for tail in range(EDGE - 1, FEWEST - 1, -1):
        start = newest.shape[1] - tail
        before = newest[:, start - EDGE : start]
        level = np.median(before, axis=1, keepdims=True)
        sigma = NORMAL_CONSISTENCY * np.median(np.abs(before - level), axis=1)
        away = newest[:, start:] - level
        middle = np.median(away, axis=1)
        limit = np.maximum(MEDIAN_AWAY * sigma, min_effect * np.abs(level[:, 0]))
        beyond = np.all(np.sign(middle)[:, None] * away > AWAY * sigma[:, None], axis=1)
        is_shift = (middle != 0) & beyond & (np.abs(middle) >= limit)
        tails[is_shift & (tails == 0)] = tail
    return [(int(at), int(tails[at])) for at in np.flatnonzero(tails)]


def clip_many(series: Numbers) -> Numbers:
    """`spikes.clip_spikes` of each row."""
    some = [_clip_some(series[start : start + _TOGETHER]) for start in range(0, len(series), _TOGETHER)]
    return np.concatenate(some) if some else series.copy()


def _clip_some(series: Numbers) -> Numbers:
    half = WIDTH // 2
    if series.shape[1] <= half:
        return series.copy()
    padded = np.pad(series, ((0, 0), (half, half)), mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, WIDTH, axis=1), axis=2)
    away = np.abs(series - middle)
    spread = NORMAL_CONSISTENCY * np.median(away, axis=1)
    spread = np.where(spread > 0, spread, MEAN_CONSISTENCY * np.mean(away, axis=1))[:, None]
    return np.clip(series, middle - LIMIT * spread, middle + LIMIT * spread)


def partition_many(series: Numbers, prices: Numbers, shortest: int) -> list[list[int]]:
    """`partition.optimal_partition` of each row, at its own price."""
    found: list[list[int]] = []
    for start in range(0, len(series), _TOGETHER):
        found += _partition_some(series[start : start + _TOGETHER], prices[start : start + _TOGETHER], shortest)
    return found


def _of_one_length(series: Numbers, min_effect: float) -> list[tuple[int, list[int]]]:
    """Rows that have steps, and where."""
    largest = np.max(np.abs(series), axis=1, keepdims=True)
    series = series / np.where(largest > 0, largest, 1.0)
    moving = np.flatnonzero(np.ptp(series, axis=1) > 0)
    clipped = clip_many(series[moving])
    still = np.ptp(clipped, axis=1) > 0
    moving, clipped = moving[still], clipped[still]
    if not len(moving):
        return []
    fresh = partition_many(clipped, np.array([cut_price(row) for row in clipped]), SHORTEST)
    strong = [
        (int(at), Steps(row, min_effect).keep_strong(cuts))
        for at, row, cuts in zip(moving, clipped, fresh, strict=True)
        if cuts
    ]
    return [one for one in strong if one[1]]


def _partition_some(series: Numbers, prices: Numbers, shortest: int) -> list[list[int]]:
    rows, count = series.shape
    if count < 2 * shortest:
        return [[] for _ in range(rows)]
    sums = np.zeros((rows, count + 1))
    np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    per_length = 1.0 / np.arange(count, 0, -1)
    best = np.full((rows, count + 1), np.inf)
    best[:, 0] = -prices
    came_from = np.zeros((rows, count + 1), dtype=np.intp)
    each = np.arange(rows)
    for end in range(shortest, count + 1):
        starts = end - shortest + 1
        cost = sums[:, :starts] - sums[:, end, None]
        np.multiply(cost, cost, out=cost)
        np.multiply(cost, per_length[count - end : count - end + starts], out=cost)
        np.subtract(best[:, :starts], cost, out=cost)
        came_from[:, end] = at = cost.argmin(axis=1)
        best[:, end] = cost[each, at] + prices
    return [_walk_back(row) for row in came_from]


def _walk_back(came_from: npt.NDArray[np.intp]) -> list[int]:
    found: list[int] = []
    at = int(came_from[-1])
    while at > 0:
        found.append(at)
        at = int(came_from[at])
    return found[::-1]
