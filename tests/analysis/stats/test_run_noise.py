"""Noise from repeats of the same code, of many cells at once."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.run_noise import EFFICIENCY, around_means, common_drift, medians_of, successive, sums, unrest


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


def test_two_thirds_of_a_degree_is_what_a_difference_is_worth():
    """The scatter of the estimate itself: var(s²) = 2 sigma⁴ / df."""
    drawn = np.random.default_rng(7).normal(0, 1, (4000, 31))
    series = np.repeat(np.arange(4000), 31)
    squares = np.sum(successive(drawn.ravel(), series, 4000).reshape(4000, 30) ** 2, axis=1)
    df = EFFICIENCY * 30
    assert 2 / np.var(squares / df) == pytest.approx(df, rel=0.12)


def test_changing_levels_never_make_a_series_look_quieter():
    rng = np.random.default_rng(3)
    quiet = rng.normal(0, 0.01, 30)
    steps = quiet + np.repeat([0, 1, 0.4], 10)
    squares, df = night_by_night(steps)
    assert 0.01 < np.sqrt(squares / df) < 0.02
    assert np.std(steps, ddof=1) > 0.3


def test_a_step_in_what_never_moves_is_a_step_and_a_second_mode_is_noise():
    step, modes = [0.0] * 11 + [0.1], [0.0, 0.0, 0.0, 0.1] * 6
    squares, df = night_by_night(step, least=0.001)
    assert np.sqrt(squares / df) < 0.001
    squares, df = night_by_night(modes, least=0.001)
    assert np.sqrt(squares / df) > 0.04


def test_a_step_that_the_control_takes_too_is_no_change_of_the_code():
    quiet = np.random.default_rng(3).normal(0, 0.01, 30)
    spike = 0.3 * (np.arange(30) == 17)
    known, df = night_by_night(quiet + spike, beside=quiet + spike)
    assert np.sqrt(night_by_night(quiet + spike)[0] / df) < 0.02
    assert np.sqrt(known / df) > 0.05
    assert night_by_night(quiet, beside=quiet + spike)[0] == pytest.approx(night_by_night(quiet)[0], rel=0.05)


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


def test_a_comparison_whose_controls_all_moved_is_noisier_for_all_cells():
    moved = 8 * np.random.default_rng(4).normal(0, 1, 401)
    assert np.min(unrest(moved)) == pytest.approx(64, rel=0.35)
    assert unrest(np.array([3 * 1.96])) == pytest.approx([9], rel=0.01)
    assert unrest(np.array([np.nan, np.nan])).tolist() == [1, 1]


def test_few_quiet_controls_seldom_make_a_comparison_noisy():
    drawn = np.random.default_rng(6).normal(0, 1, (2000, 10))
    assert np.mean([np.min(unrest(scores)) > 1 for scores in drawn]) == pytest.approx(0.05, abs=0.015)


def test_drift_is_what_most_cells_have_in_common():
    changes = [0.03] * 15 + [0.031] * 5 + [0.5, np.nan]
    assert common_drift(changes) == pytest.approx(0.03)
    assert common_drift(changes[:19]) == 0.0
    assert common_drift([]) == 0.0


def test_a_step_that_is_judged_is_cut_off_where_the_others_say():
    # Three of ten steps are large: a spike's two, and the last.
    values = np.array([0.0, 0.01, 0.5, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.2])
    judged = np.arange(10) == 9
    kept, cut = (successive(values, np.zeros(11, dtype=int), 1, judged=one)[-1] for one in (None, judged))
    worth = np.sqrt(EFFICIENCY / 2)
    assert kept == pytest.approx(0.19 * worth)
    assert cut == pytest.approx(3 * 1.4826 * 0.01 * worth)


def test_the_median_of_each_owner_is_that_of_its_values():
    values, owners = np.array([5.0, 1.0, 3.0, 2.0, 8.0, -4.0]), np.array([2, 0, 2, 2, 2, 3])
    assert medians_of(values, owners, 5).tolist() == pytest.approx([1.0, np.nan, 4.0, -4.0, np.nan], nan_ok=True)
