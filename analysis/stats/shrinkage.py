"""What a few runs say of a cell's noise, pulled towards what its siblings say: variances by empirical Bayes.

Model (Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments",
Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3, sections 3 and 6.2): cells have variances
of their own, 1 / variance ~ chi²(d0) / (d0 s0²), and v degrees of freedom of a cell's own runs give s² ~ variance chi²(v) / v.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, polygamma

from analysis.stats.arrays import Numbers

#: Cells with a variance of their own that a prior needs: of fewer, a spread of spreads means nothing.
FEWEST = 5
#: Halvings of a range of 20 powers of ten, until its ends are as near as numbers are.
_STEPS = 60


@dataclass(frozen=True, slots=True)
class Prior:
    """Typical variance of the cells and how many degrees of freedom that knowledge is worth; `df` is inf if all are alike."""

    variance: float
    df: float


def fit_prior(variances: Sequence[float] | Numbers, dfs: Sequence[float] | Numbers) -> Prior | None:
    """The prior that the cells' own variances (of ln values) and their degrees of freedom speak for.

    Method of moments on e = ln s² - digamma(v/2) + ln(v/2), whose mean is ln s0² - digamma(d0/2) + ln(d0/2) and whose variance
    is trigamma(v/2) + trigamma(d0/2). Where the e scatter no more than chance alone would have it, all cells are alike
    and d0 is infinite. Values that are not positive and finite, or have no degree of freedom, are left out. None for fewer than
    5 usable cells.
    """
    own, freedom = np.asarray(variances, dtype=np.float64), np.asarray(dfs, dtype=np.float64)
    usable = np.isfinite(own) & (own > 0) & np.isfinite(freedom) & (freedom > 0)
    if usable.sum() < FEWEST:
        return None
    half = freedom[usable] / 2
    logs = np.log(own[usable]) - digamma(half) + np.log(half)
    middle = float(np.mean(logs))
    beyond_chance = float(np.var(logs, ddof=1) - np.mean(polygamma(1, half)))
    if beyond_chance <= 0:
        # One variance for all: its maximum likelihood estimate is the pooled one.
        return Prior(float(np.average(own[usable], weights=freedom[usable])), float("inf"))
    half_prior = _inverse_trigamma(beyond_chance)
    return Prior(float(np.exp(middle + digamma(half_prior) - np.log(half_prior))), 2 * half_prior)


def moderate(
    variances: Sequence[float] | Numbers, dfs: Sequence[float] | Numbers, prior: Prior | None
) -> tuple[Numbers, Numbers]:
    """Each cell's variance with what the prior adds, (d0 s0² + v s²) / (d0 + v), and its degrees of freedom d0 + v.

    A cell without a variance of its own (NaN, or no degree of freedom) has the prior's. Without a prior it has none (NaN, 0).
    """
    own, freedom = np.asarray(variances, dtype=np.float64), np.asarray(dfs, dtype=np.float64)
    known = np.isfinite(own) & (own >= 0) & (freedom > 0)
    weight = np.where(known, freedom, 0.0)
    value = np.where(known, own, 0.0)
    if prior is None:
        return np.where(known, value, np.nan), weight
    if np.isinf(prior.df):
        return np.full(own.shape, prior.variance), np.full(own.shape, np.inf)
    total = prior.df + weight
    return (prior.df * prior.variance + weight * value) / total, total


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value > 0, which falls with x: by halving the range of ln x."""
    low, high = 1e-10, 1e10
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if polygamma(1, middle) > value else (low, middle)
    return low
