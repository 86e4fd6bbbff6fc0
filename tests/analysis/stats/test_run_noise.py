"""Noise from repeats of the same code, of many cells at once."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.run_noise import EFFICIENCY, around_means, common_drift, successive, sums, unrest


def within(values, groups, owners, count):
    """Squares of values around the mean of their group, summed by owner, and the degrees of freedom of each sum."""
    worth = 1 - 1 / np.bincount(groups)[groups]
    return sums(around_means(values, groups) ** 2, owners, count), sums(worth, owners, count).round()


def of_one(values, groups=None):
    """Sum of squares and degrees of freedom of a single owner."""
    values = np.array(values, dtype=float)
    groups = np.zeros(len(values), int) if groups is None else np.array(groups)
    squares, df = within(values, groups, np.zeros(len(values), int), 1)
    return squares[0], df[0]


def night_by_night(values, least=0.0, beside=None):
    """Sum of squares and degrees of freedom of a single series."""
    steps = successive(np.array(values, dtype=float), np.zeros(len(values), int), 1, least=least, beside=beside)
    return float(steps @ steps), EFFICIENCY * len(steps)


def test_without_repeats_nothing_is_known():
    assert of_one([1.0, 2.0, 3.0], [0, 1, 2]) == (0, 0)
    assert [part.tolist() for part in within(np.array([]), np.array([], int), np.array([], int), 2)] == [[0, 0], [0, 0]]
    assert night_by_night([3.0]) == (0, 0)
    assert night_by_night([]) == (0, 0)


def test_neighbouring_nights_tell_the_noise_of_a_quiet_series():
    squares, df = night_by_night(np.random.default_rng(2).normal(0, 0.01, 4000))
    assert np.sqrt(squares / df) == pytest.approx(0.01, rel=0.03)
    assert df == pytest.approx(3999 * 2 / 3)


def test_a_step_in_what_never_moves_is_a_step_and_a_second_mode_is_noise():
    step, modes = [0.0] * 11 + [0.1], [0.0, 0.0, 0.0, 0.1] * 6
    squares, df = night_by_night(step, least=0.001)
    assert np.sqrt(squares / df) < 0.001
    squares, df = night_by_night(modes, least=0.001)
    assert np.sqrt(squares / df) > 0.04


@pytest.mark.parametrize("longest", [9, 400])
def test_series_of_whatever_lengths_and_order_are_ranked_alike(longest):
    """One long series, or series that do not stand in the order of their numbers, make the others no table."""
    rng = np.random.default_rng(5)
    lengths = [longest, 9, 8, 1, 9, 7, 9, 9]
    series = np.repeat(np.arange(len(lengths)), lengths)
    values = rng.normal(0, 1, len(series)).round(1)
    alone = [successive(values[series == one], np.zeros(length, int), 1) for one, length in enumerate(lengths)]
    other_order = np.argsort(-series, kind="stable")
    assert successive(values, series, len(lengths)).tolist() == np.concatenate(alone).tolist()
    turned = successive(values[other_order], series[other_order], len(lengths))
    assert turned.tolist() == np.concatenate(alone[::-1]).tolist()


def test_a_cell_that_moved_in_a_quiet_comparison_stands_for_itself():
    quiet = np.random.default_rng(4).normal(0, 1, 41).clip(-1.9, 1.9)
    assert unrest(quiet).tolist() == [1] * 41
    quiet[7], quiet[8] = 19.6, np.nan
    found = unrest(quiet)
    assert found[7] == pytest.approx(100, rel=0.01)
    assert np.delete(found, 7).tolist() == [1] * 40


def test_drift_is_what_most_cells_have_in_common():
    changes = [0.03] * 15 + [0.031] * 5 + [0.5, np.nan]
    assert common_drift(changes) == pytest.approx(0.03)
    assert common_drift(changes[:19]) == 0.0
    assert common_drift([]) == 0.0
