"""Spikes, optimal partitioning and the tests of a cut, each alone."""

import itertools

import numpy as np
import pytest
from scipy.stats import ttest_ind

from analysis.stats.changepoints import clip_spikes, correlation, optimal_partition, piece_of, welch_error


def clipped(values):
    return clip_spikes(np.array([values]))[0]


def partition(values, price, shortest):
    return optimal_partition(values[None, :], np.array([price]), shortest)[0]


def test_a_spike_is_clipped_and_a_step_of_five_is_not():
    values = np.array([1.0, 1.1, 0.9] * 10)
    values[15] = 50
    values[25:] += 5
    shown = clipped(values)
    assert shown[15] < 2
    assert shown[25:] == pytest.approx(values[25:])
    assert shown[:15] == pytest.approx(values[:15])


def _cost(values, cuts, price):
    bounds = [0, *cuts, len(values)]
    within = sum(((values[a:b] - values[a:b].mean()) ** 2).sum() for a, b in itertools.pairwise(bounds))
    return within + price * len(cuts)


@pytest.mark.parametrize("seed", range(2))
def test_the_partition_is_the_best_of_all(seed):
    values = np.random.default_rng(seed).standard_normal(13).cumsum()
    price, shortest = 1.5, 2
    possible = [
        cuts
        for count in range(6)
        for cuts in itertools.combinations(range(1, 13), count)
        if all(b - a >= shortest for a, b in itertools.pairwise((0, *cuts, 13)))
    ]
    best = min(_cost(values, cuts, price) for cuts in possible)
    assert _cost(values, partition(values, price, shortest), price) == pytest.approx(best)


def test_the_error_of_independent_nights_is_that_of_welch():
    a, b = np.array([1.0, 3, 2, 4, 1, 5, 1, 3]), np.array([6.0, 9, 5, 8, 4, 9, 5])
    old, new = piece_of(a), piece_of(b)
    assert correlation(old, new) == 0
    error, freedom = welch_error(old, new)
    known = ttest_ind(a, b, equal_var=False)
    assert (old.mean - new.mean) / error == pytest.approx(known.statistic)
    assert freedom == pytest.approx(known.df)
