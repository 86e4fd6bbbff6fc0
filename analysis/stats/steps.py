"""Decides whether a cut of a series is a step: certain, visible at its edge, and large enough to matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from analysis.stats.arrays import Numbers

#: Points on each side in which a step must stand out: what an eye takes in around an edge. 10 to 30 work as well.
EDGE = 20
#: Smallest edge contrast: distance of the levels of the nearest points in pooled standard deviations of these points.
CONTRAST = 1.4
#: Wrong cuts expected in a series of independent normal noise at most, shared out over its points (Bonferroni).
FALSE_CUTS = 0.05
#: Largest believed correlation of neighbouring nights. Of short pieces it is known badly.
_MOST_CORRELATED = 0.95


@dataclass(frozen=True, slots=True)
class Piece:
    """The statistics of a run of points: `mean`, `median` in their unit, `variance` and `covariance` in its square.

    `covariance` is that of neighbours, sum e_i e_(i+1) / (n - 1) with e the deviations from the mean.
    """

    count: int
    mean: float
    median: float
    variance: float
    covariance: float


def piece_of(values: Numbers) -> Piece:
    """The piece of at least two values."""
    mean = float(values.mean())
    deviation = values - mean if np.ptp(values) else np.zeros_like(values)  # the mean of equal values may be rounded
    freedom = values.size - 1
    variance, covariance = float(deviation @ deviation) / freedom, float(deviation[1:] @ deviation[:-1]) / freedom
    return Piece(values.size, mean, float(np.median(values)), variance, covariance)


def contrast(old: Piece, new: Piece) -> float:
    """Distance of the means in pooled standard deviations, both sides weighing the same (Cohen's d). No unit."""
    pooled = float(np.sqrt((old.variance + new.variance) / 2))
    return abs(new.mean - old.mean) / pooled if pooled else float("inf")


def correlation(old: Piece, new: Piece) -> float:
    """Correlation of neighbouring nights within two pieces, between 0 and 0.95.

    Sum of e_i e_(i+1) over sum of e_i^2 of both, plus 2 / n for what two fitted means take away (each about 1 / n: Marriott
    and Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954).
    """
    squares = (old.count - 1) * old.variance + (new.count - 1) * new.variance
    products = (old.count - 1) * old.covariance + (new.count - 1) * new.covariance
    raw = products / squares + 2 / (old.count + new.count) if squares > 0 else 0.0
    return min(max(raw, 0.0), _MOST_CORRELATED)


def welch_error(old: Piece, new: Piece) -> tuple[float, float]:
    """Standard error of the difference of two means, in their unit, and its degrees of freedom.

    sqrt(w (a + b)) and (a + b)^2 / (a^2 / (n_old - 1) + b^2 / (n_new - 1)) / w, at least 1, with a, b = variance / count (Welch,
    "The generalization of Student's problem when several different population variances are involved", 1947).
    w = sqrt((1 + r) / (1 - r)), r the `correlation`. For AR(1) noise the variance of a mean grows by w^2, and n / w^2 points are
    independent. Only half of that is taken, on the scale of logarithms: slow waves and missed steps look like r too, and the
    full correction hides real steps (measured: docs/statistics.md).
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
    """The cuts of one series and how strong each is. A cut with a strength below 1 is no step.

    The strength is the smallest of three ratios (docs/statistics.md, "Change points"): how certain, how visible at the edge
    (0 if the edge goes the other way than the pieces: a slow drift has no edge) and how large. The size is the larger one of
    the medians' distance at the edge and of that between the pieces plus its confidence limit, over the smaller level: a step
    is dropped for its size only where the data show that it is smaller.
    """

    def __init__(self, values: Numbers, min_effect: float) -> None:
        self._values = values
        self._level = FALSE_CUTS / values.size
        self._min_effect = min_effect

    def keep_strong(self, cuts: list[int]) -> list[int]:
        """Removes the weakest cut and judges its neighbours again, until all cuts have a strength of 1 at least."""
        bounds = [0, *cuts, self._values.size]
        strengths = [self.strength(*bounds[at : at + 3]) for at in range(len(cuts))]
        while strengths and min(strengths) < 1:
            weakest = strengths.index(min(strengths))
            del bounds[weakest + 1], strengths[weakest]
            for at in range(max(weakest - 1, 0), min(weakest + 1, len(strengths))):
                strengths[at] = self.strength(*bounds[at : at + 3])
        return bounds[1:-1]

    def strength(self, start: int, cut: int, end: int) -> float:
        """The smallest of the three ratios for the cut between start..cut-1 and cut..end-1."""
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
    """Natural logarithm of the two-sided p of Student's t, at least -690 (ln of the smallest p told apart)."""
    p = 2 * float(stdtr(freedom, -distance / error)) if error else 0.0
    return float(np.log(max(p, 1e-300)))
