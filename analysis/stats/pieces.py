"""Runs of nights at one level: what is known of them, and how far apart two of them are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Largest correlation of neighbouring nights that is believed: of short pieces it is known badly.
_MOST_CORRELATED = 0.95


@dataclass(frozen=True, slots=True)
class Piece:
    """What a test needs of a run of points: `mean`, `median` in their unit, `variance` and `covariance` in its square.

    `covariance` is that of neighbours, sum e_i e_(i+1) / (n - 1) with e the deviations from the mean.
    """

    count: int
    mean: float
    median: float
    variance: float
    covariance: float


def piece_of(values: npt.NDArray[np.float64]) -> Piece:
    """The piece of at least two values."""
    mean = float(values.mean())
    away = values - mean if np.ptp(values) else np.zeros_like(values)  # the mean of equal values may be off by rounding
    freedom = values.size - 1
    variance, covariance = float(away @ away) / freedom, float(away[1:] @ away[:-1]) / freedom
    return Piece(values.size, mean, float(np.median(values)), variance, covariance)


def contrast(old: Piece, new: Piece) -> float:
    """Distance of the means in pooled standard deviations, both sides weighing the same (Cohen's d). No unit."""
    pooled = float(np.sqrt((old.variance + new.variance) / 2))
    return abs(new.mean - old.mean) / pooled if pooled else float("inf")


def correlation(old: Piece, new: Piece) -> float:
    """Correlation of neighbouring nights within two pieces, between 0 and 0.95.

    Sum of e_i e_(i+1) over sum of e_i^2 of both, and 2 / n for what two fitted means take away (each about 1 / n: Marriott
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
    independent. Only half of it is taken, on the scale of logarithms: slow waves and steps not cut look like r too, and the
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
