"""Find where a nightly series went to a new level. Deterministic; the smallest effect is the only parameter.

Single bad nights are clipped, the series is cut into constant pieces at a low price per cut, and the weakest cut is removed
until every cut that is left is a step. docs/statistics.md, "Change points", has formulas, sources and measured quality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from analysis.stats.averages import NORMAL_CONSISTENCY, Labels, Numbers, robust_sigma

#: Points on each side in which a step must stand out: about as many as an eye sees around an edge. 10 to 30 work as well.
EDGE = 20
#: Smallest contrast at an edge: distance between the means of the nearest points, in their pooled standard deviations.
CONTRAST = 1.4
#: Most wrong cuts that are expected in a series of independent normal noise, shared out over its points (Bonferroni).
FALSE_CUTS = 0.05
#: Largest correlation of neighbouring nights that is used. Short pieces estimate it badly.
_MOST_CORRELATED = 0.95


@dataclass(frozen=True, slots=True)
class Piece:
    """Statistics of consecutive points: `mean` and `median` in their unit, `variance` and `covariance` in its square.

    `covariance` is between neighbours, sum e_i e_(i+1) / (n - 1) with e the deviations from the mean.
    """

    count: int
    mean: float
    median: float
    variance: float
    covariance: float


def piece_of(values: Numbers) -> Piece:
    """Return the statistics of at least two consecutive values."""
    mean = float(values.mean())
    deviation = values - mean if np.ptp(values) else np.zeros_like(values)  # the mean of equal values may be rounded
    freedom = values.size - 1
    variance, covariance = float(deviation @ deviation) / freedom, float(deviation[1:] @ deviation[:-1]) / freedom
    return Piece(values.size, mean, float(np.median(values)), variance, covariance)


def contrast(old: Piece, new: Piece) -> float:
    """Return the distance of the means in pooled standard deviations, with equal weights for both sides (Cohen's d). No unit.

    Infinity if neither side varies.
    """
    pooled = float(np.sqrt((old.variance + new.variance) / 2))
    return abs(new.mean - old.mean) / pooled if pooled else float("inf")


def correlation(old: Piece, new: Piece) -> float:
    """Return the correlation of neighbouring nights within two pieces, between 0 and 0.95.

    It is the sum of e_i e_(i+1) over the sum of e_i^2 of both pieces, plus 2 / n for the bias of the two fitted means (each about
    -1 / n: Marriott and Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954).
    """
    squares = (old.count - 1) * old.variance + (new.count - 1) * new.variance
    products = (old.count - 1) * old.covariance + (new.count - 1) * new.covariance
    raw = products / squares + 2 / (old.count + new.count) if squares > 0 else 0.0
    return min(max(raw, 0.0), _MOST_CORRELATED)


def welch_error(old: Piece, new: Piece) -> tuple[float, float]:
    """Return the standard error of the difference of two means, in their unit, and its degrees of freedom.

    sqrt(w (a + b)) and (a + b)^2 / (a^2 / (n_old - 1) + b^2 / (n_new - 1)) / w, at least 1, with a, b = variance / count (Welch,
    "The generalization of Student's problem when several different population variances are involved", 1947).
    w = sqrt((1 + r) / (1 - r)), r the `correlation`. For AR(1) noise the variance of a mean grows by w^2, and n / w^2 points are
    independent. Only half of this correction is applied, on the scale of logarithms: slow waves and missed steps raise r too,
    and the full correction hides real steps (measured: docs/statistics.md).
    """
    a, b = old.variance / old.count, new.variance / new.count
    if a + b == 0:
        return 0.0, 1.0
    r = correlation(old, new)
    wider = float(np.sqrt((1 + r) / (1 - r)))
    share = a / (a + b)  # squares of tiny variances would be zero
    freedom = 1 / (share**2 / (old.count - 1) + (1 - share) ** 2 / (new.count - 1))
    return float(np.sqrt(wider * (a + b))), max(freedom / wider, 1.0)


class Steps:
    """Cuts of one series, judged by their strength. A cut with a strength below 1 is no step.

    The strength is the smallest of three ratios (docs/statistics.md, "Change points"): how certain the cut is, how visible at
    the edge (0 if the edge goes the other way than the pieces: a slow drift has no edge) and how large. The size is the larger
    one of two distances of medians, over the smaller level: the distance at the edge, and the distance of the pieces plus its
    confidence limit. So a step is dropped for its size only where the data show that it is smaller.
    """

    def __init__(self, values: Numbers, min_effect: float) -> None:
        self._values = values
        self._level = FALSE_CUTS / values.size
        self._min_effect = min_effect

    def keep_strong(self, cuts: list[int]) -> list[int]:
        """Remove the weakest cut and judge its neighbours again, until all cuts have a strength of at least 1."""
        bounds = [0, *cuts, self._values.size]
        strengths = [self.strength(*bounds[at : at + 3]) for at in range(len(cuts))]
        while strengths and min(strengths) < 1:
            weakest = strengths.index(min(strengths))
            del bounds[weakest + 1], strengths[weakest]
            for at in range(max(weakest - 1, 0), min(weakest + 1, len(strengths))):
                strengths[at] = self.strength(*bounds[at : at + 3])
        return bounds[1:-1]

    def strength(self, start: int, cut: int, end: int) -> float:
        """Return the smallest of the three ratios for the cut between start..cut-1 and cut..end-1."""
        before, after = self._values[start:cut], self._values[cut:end]
        old, new = piece_of(before), piece_of(after)
        if old.mean == new.mean:
            return 0.0
        near_old, near_new = piece_of(before[-EDGE:]), piece_of(after[:EDGE])
        same_way = (near_new.mean - near_old.mean) * (new.mean - old.mean) > 0
        visible = contrast(near_old, near_new) / CONTRAST if same_way else 0.0
        edge = abs(near_new.median - near_old.median) if same_way else 0.0
        error, freedom = welch_error(old, new)
        certain = _log_p(abs(new.mean - old.mean), error, freedom) / float(np.log(self._level))
        return min(certain, visible, self._large(old, new, error, freedom, edge))

    def _large(self, old: Piece, new: Piece, error: float, freedom: float, edge: float) -> float:
        level = min(abs(old.median), abs(new.median))
        if self._min_effect == 0 or level == 0:
            return float("inf")
        limit = -float(stdtrit(freedom, self._level / 2)) * error
        size = max(abs(new.median - old.median) + limit, edge)
        return size / level / self._min_effect


def _log_p(distance: float, error: float, freedom: float) -> float:
    """Return the natural logarithm of the two-sided p of Student's t, at least -690 (smaller p are not told apart)."""
    p = 2 * float(stdtr(freedom, -distance / error)) if error else 0.0
    return float(np.log(max(p, 1e-300)))


Series = Sequence[float] | Numbers

#: Fewest nights of a level. Fewer cannot be told from a few bad nights. Two levels need 10 nights.
SHORTEST = 5
#: Points of the running median. A shift of fewer than half of these points is a spike, a shift of `SHORTEST` points stays.
WIDTH = 9
#: Robust standard deviations from the running median beyond which a value is a spike (Hampel's identifier takes 3 to 4).
LIMIT = 4.0
#: sqrt(pi / 2): makes the mean absolute deviation of normal data estimate its standard deviation.
MEAN_CONSISTENCY = float(np.sqrt(np.pi / 2))
#: Price of a cut in units of 2 sigma^2 ln n, where 1 is Schwarz's price (BIC). With noise that is correlated from night to
#: night, a price of 1 makes too many cuts. Cuts that are no steps are removed later.
STRENGTH = 2.0
#: Share of the total sum of squares that a cut must save at least, so that rounding errors are not cut.
_ROUNDING = 1e-9
#: Number of series that are processed together, so that their arrays fit a core's cache.
_TOGETHER = 64


def detect(values: Series, *, min_effect: float = 0.01) -> list[int]:
    """Return the first indices (0-based, ascending, never 0) of new levels in a series in order of time.

    Args:
        values: one number per night in any unit, also negative. NaN and infinity mean "not measured": they keep their
            place, and the first measured night of a new level is returned.
        min_effect: smallest relative step, 0.01 is one per cent. A step that is shown to be smaller is left out.

    Returns:
        No index for fewer than 10 measured values or a constant series.

    Raises:
        ValueError: values that are not one row of numbers, or a `min_effect` that is negative or not finite.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError("a series is one row of numbers")
    return detect_rows(series[None, :], min_effect=min_effect)[0]


def detect_rows(values: Numbers, *, min_effect: float = 0.01) -> list[list[int]]:
    """Apply `detect` to each row of `values`.

    Raise `ValueError` for values that are not rows of numbers, or a `min_effect` that is negative or not finite.
    """
    if values.ndim != 2:
        raise ValueError("many series are rows of numbers")
    if not 0 <= min_effect < math.inf:
        raise ValueError("min_effect is a share, not negative")
    measured = np.isfinite(values)
    counts = measured.sum(axis=1)
    change_points: list[list[int]] = [[] for _ in range(len(values))]
    for count in np.unique(counts[counts >= 2 * SHORTEST]).tolist():
        rows = np.flatnonzero(counts == count)
        places = np.nonzero(measured[rows])[1].reshape(len(rows), count)
        series = np.take_along_axis(values[rows], places, axis=1)
        for start in range(0, len(rows), _TOGETHER):
            for row, cuts in _detect_block(series[start : start + _TOGETHER], min_effect):
                change_points[rows[start + row]] = places[start + row][cuts].tolist()
    return change_points


def _detect_block(series: Numbers, min_effect: float) -> list[tuple[int, list[int]]]:
    """Return the number of each row that has steps, with the indices of its steps. Every value of `series` is measured."""
    # Scaled to at most 1, so that no square overflows.
    largest = np.max(np.abs(series), axis=1, keepdims=True)
    clipped = clip_spikes(series / np.where(largest > 0, largest, 1.0))
    varying = np.flatnonzero((np.ptp(series, axis=1) > 0) & (np.ptp(clipped, axis=1) > 0))
    prices = np.array([cut_price(row) for row in clipped[varying]])
    partitions = optimal_partition(clipped[varying], prices, SHORTEST)
    return [
        (row, strong)
        for row, cuts in zip(varying.tolist(), partitions, strict=True)
        if cuts and (strong := Steps(clipped[row], min_effect).keep_strong(cuts))
    ]


def clip_spikes(series: Numbers) -> Numbers:
    """Move the values of each row that are further than 4 s from its running median m of 9 points to m +- 4 s.

    s is 1.4826 x MAD of the values around m. Where more than half of the values equal m (quantised series) this is zero, and
    s is 1.2533 x their mean absolute deviation. The ends are mirrored. Values are clipped and not replaced by the median, so
    that the spread of the rest stays as it is.
    Hampel's identifier: Pearson, "Outliers in process modeling and identification", IEEE Trans. CST 10(1), 2002.
    """
    half = WIDTH // 2
    if series.shape[1] <= half:
        return series.copy()
    padded = np.pad(series, ((0, 0), (half, half)), mode="reflect")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, WIDTH, axis=1), axis=2)
    deviation = np.abs(series - middle)
    spread = NORMAL_CONSISTENCY * np.median(deviation, axis=1)
    spread = np.where(spread > 0, spread, MEAN_CONSISTENCY * np.mean(deviation, axis=1))[:, None]
    return np.clip(series, middle - LIMIT * spread, middle + LIMIT * spread)


def difference_sigma(values: Numbers) -> float:
    """Return the standard deviation of the noise, 1.4826 x MAD of the successive differences / sqrt(2), in the values' unit.

    Steps of the level hardly move it (von Neumann, "Distribution of the ratio of the mean square successive difference to
    the variance", 1941; MAD for robustness). Equal neighbours are left out: in quantised series they would make it zero. It is
    zero if all values are equal.
    """
    differences = np.diff(values)
    moved = differences[differences != 0]
    return robust_sigma(moved) / float(np.sqrt(2)) if moved.size else 0.0


def cut_price(values: Numbers) -> float:
    """Return the price of a cut in a series of n values, 2 x 2 sigma^2 ln n, in the squared unit of the values.

    It is at least 1e-9 of the total sum of squares, so that rounding errors are not cut.
    """
    floor = _ROUNDING * float(np.sum((values - np.mean(values)) ** 2))
    return max(STRENGTH * 2 * difference_sigma(values) ** 2 * float(np.log(values.size)), floor)


def optimal_partition(series: Numbers, prices: Numbers, shortest: int) -> list[list[int]]:
    """Return for each row the cuts that minimise the sum of squares within pieces + price x cuts.

    F(t) = min over s <= t - shortest of F(s) + C(s, t) + price, C(s, t) = sum y^2 - (sum y)^2 / (t - s) over s..t-1
    (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE SPL 12(2), 2005). Exact, O(n^2)
    with one vector operation per point. Of equally good cuts the first is taken.
    """
    rows, count = series.shape
    if count < 2 * shortest:
        return [[] for _ in range(rows)]
    sums = np.zeros((rows, count + 1))
    np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    per_length = 1.0 / np.arange(count, 0, -1)  # of the last k entries the first is 1/k and the last is 1
    best = np.full((rows, count + 1), np.inf)  # F(s) minus the squares before s
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


def _walk_back(came_from: Labels) -> list[int]:
    cuts: list[int] = []
    at = int(came_from[-1])
    while at > 0:
        cuts.append(at)
        at = int(came_from[at])
    return cuts[::-1]
