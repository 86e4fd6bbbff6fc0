"""Noise from repeats of the same code, of many cells at once."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from analysis.stats import run_noise


def within(values, groups, owners, count):
    """Squares of values around the mean of their group, summed by owner, and the degrees of freedom of each sum."""
    worth = 1 - 1 / np.bincount(groups)[groups]
    squares = run_noise.around_means(values, groups) ** 2
    return run_noise.sums(squares, owners, count), run_noise.sums(worth, owners, count).round()


def night_by_night(values, least=0.0):
    """The standard deviation that the nights of a single series tell."""
    steps = run_noise.successive(np.array(values, dtype=float), np.zeros(len(values), int), 1, least=least)
    return np.sqrt(steps @ steps / (run_noise.EFFICIENCY * len(steps)))


def test_neighbouring_nights_tell_the_noise_of_a_series():
    assert night_by_night(np.random.default_rng(2).normal(0, 0.01, 4000)) == pytest.approx(0.01, rel=0.03)
    # A step in what never moves is a step, and a second mode is noise.
    assert night_by_night([0.0] * 11 + [0.1], least=0.001) < 0.001
    assert night_by_night([0.0, 0.0, 0.0, 0.1] * 6, least=0.001) > 0.04


@pytest.mark.parametrize("longest", [9, 400])
def test_series_of_whatever_lengths_and_order_are_ranked_alike(longest):
    """One long series, or series that do not stand in the order of their numbers, make the others no table."""
    rng = np.random.default_rng(5)
    lengths = [longest, 9, 8, 1, 9, 7, 9, 9]
    series = np.repeat(np.arange(len(lengths)), lengths)
    values = rng.normal(0, 1, len(series)).round(1)
    alone = [
        run_noise.successive(values[series == one], np.zeros(length, int), 1) for one, length in enumerate(lengths)
    ]
    other_order = np.argsort(-series, kind="stable")
    assert run_noise.successive(values, series, len(lengths)).tolist() == np.concatenate(alone).tolist()
    turned = run_noise.successive(values[other_order], series[other_order], len(lengths))
    assert turned.tolist() == np.concatenate(alone[::-1]).tolist()


def test_drift_is_what_most_cells_have_in_common():
    changes = [0.03] * 15 + [0.031] * 5 + [0.5, np.nan]
    assert run_noise.common_drift(changes) == pytest.approx(0.03)
    assert run_noise.common_drift(changes[:19]) == 0.0
    assert run_noise.common_drift([]) == 0.0


# What the eager run explains of the compiled one

RNG = np.random.default_rng(3)


def fit(x, y):
    x, y = x - x.mean(), y - y.mean()
    return run_noise.fit_slopes(*(np.array([one @ other]) for one, other in ((x, x), (x, y), (y, y))))


def test_a_slope_stays_within_zero_and_one_and_is_the_usual_without_a_move():
    x, y = RNG.normal(0, 0.2, 50), RNG.normal(0, 0.01, 6)
    for true, limit in ((1.6, 1), (-0.4, 0)):
        found = fit(x, true * x)
        assert found.slope[0] == limit
        assert found.left[0] == pytest.approx((true - limit) ** 2 * float(((x - x.mean()) ** 2).sum()))
    # Little is known of the usual one.
    found = fit(np.zeros(6), y)
    assert found.slope[0] == run_noise.USUAL
    assert found.spread[0] == run_noise.WORTH
    assert found.taken[0] == 0
    assert found.left[0] == pytest.approx(((y - y.mean()) ** 2).sum())


# Variances by empirical Bayes


def cells(count, df, prior_df, typical, seed=1):
    """Variances of `count` cells as the model draws them, each estimated with `df` degrees of freedom."""
    rng = np.random.default_rng(seed)
    true = typical * prior_df / rng.chisquare(prior_df, count) if np.isfinite(prior_df) else np.full(count, typical)
    return true * rng.chisquare(df, count) / df, np.full(count, float(df))


@pytest.mark.parametrize(("prior_df", "typical"), [(1.5, 1e-6), (4, 1e-4)])
def test_the_prior_of_simulated_cells_is_found_again(prior_df, typical):
    found = run_noise.fit_prior(*cells(20_000, 7, prior_df, typical))
    assert found.df == pytest.approx(prior_df, rel=0.12)
    assert found.variance == pytest.approx(typical, rel=0.03)


def test_equal_variances_count_for_most_and_too_few_cells_have_no_prior():
    found = run_noise.fit_prior([1e-4] * 20, [6] * 20)
    assert found.variance == pytest.approx(1e-4, rel=0.01)
    assert 7 < found.df <= run_noise.MOST_FROM_SIBLINGS
    own, df = run_noise.moderate([1e-4, np.nan], [3, 0], found)
    assert own.tolist() == pytest.approx([1e-4, found.variance])
    assert df.tolist() == [found.df + 3, found.df]
    for variance, df, cells_of in ((1e-4, 3, 4), (np.nan, 3, 9), (0.0, 3, 9), (1e-4, 0, 9)):
        assert run_noise.fit_prior([variance] * cells_of, [df] * cells_of) is None


def test_one_noisy_cell_does_not_make_the_others_noisy():
    """Thirty cells measured twice, as in a check: by the method of moments all are alike, and 9 % noisy."""
    variances, dfs = cells(29, 1, np.inf, 1e-6)
    quiet, found = (run_noise.fit_prior([*variances, last], [*dfs, 1]) for last in (1e-6, 0.5**2))
    assert np.sqrt(found.variance) < 1.5 * np.sqrt(quiet.variance) < 0.0015
    assert found.df < quiet.df / 1.5


def test_what_is_assumed_of_the_noise_counts_until_repeats_tell_it():
    nothing = run_noise.fit_prior([np.nan], [0], 0.002)
    assert (nothing.variance, nothing.df) == (pytest.approx(0.002**2, rel=1e-3), pytest.approx(2, rel=0.1))
    noisy = [np.sqrt(run_noise.fit_prior(*cells(count, 1, 2, 0.02**2), 0.002).variance) for count in (1, 5, 30, 500)]
    assert noisy == sorted(noisy)
    assert noisy[1] < 0.013
    assert noisy[-1] == pytest.approx(0.02, rel=0.15)
    assert run_noise.fit_prior(*cells(4, 1, 2, 1e-4)) is None


@pytest.mark.parametrize("count", [5, 12, 60])
def test_intervals_from_a_few_repeats_of_uneven_cells_hold_the_truth(count):
    """Cells measured twice, whose variances are as uneven as those of device times; each interval is of one without repeats."""
    rng, held = np.random.default_rng(count), []
    for trial in range(300):
        prior = run_noise.fit_prior(*cells(count, 1, 1.5, 1e-5, seed=trial))
        true = 1e-5 * 1.5 / rng.chisquare(1.5, 50)
        moved = np.abs(rng.normal(0, np.sqrt(2 * true)))
        held.append([moved < np.sqrt(2 * prior.variance) * stdtrit(prior.df, part) for part in (0.975, 0.9975)])
    at_95, at_99_5 = np.mean(held, axis=(0, 2))
    assert at_95 > 0.88
    assert at_99_5 > 0.97


# Single runs apart from their neighbours, and programs with two modes


def tail_with(spikes, size=0.04, runs=14, series=20):
    """The tail of quiet series of which so many runs are apart by `size`."""
    random = np.random.default_rng(3)
    values = random.normal(0, 0.002, runs * series)
    values[random.choice(runs * series, spikes, replace=False)] += size
    owners = np.repeat(np.arange(series), runs)
    distances, known = run_noise.distances_from_neighbours(values, owners)
    return run_noise.tail_of(distances[known], owners[known], series)


def chance(tail, change=0.04, earlier=1, later=1, agree=True):
    sides = (run_noise.SideRuns(np.full(20, float(count)), np.full(20, agree)) for count in (earlier, later))
    return float(tail.chance(np.full(20, change), *sides)[0])


def test_the_chance_of_a_change_is_that_of_runs_as_far_apart():
    tail = tail_with(28)
    once = chance(tail)
    assert once == pytest.approx(0.2, abs=0.08)
    assert chance(tail, earlier=2, later=2) == pytest.approx(once**2 / 2, rel=0.01)
    assert chance(tail, later=2) == pytest.approx(once / 2 + once**2 / 4, rel=0.01)
    # One of two runs that is apart by 4 % makes a change of 2 %, but not where both show it.
    assert chance(tail, change=0.02, earlier=2, later=2, agree=False) >= 2 * once
    assert chance(tail, change=0.02, earlier=2, later=2) <= once**2 / 2
    assert chance(tail, change=0.4) == 0
    assert chance(tail_with(0)) == 0


@pytest.mark.parametrize(("apart", "is_suspect"), [(0.0, False), (0.03, False), (-0.01, False), (-0.03, True)])
def test_a_base_like_the_runs_before_it_is_not_the_run_that_is_apart(apart, is_suspect):
    """Base must lie on the other side of those runs, by more than half of the change, to explain it."""
    tail = tail_with(28)
    known = replace(tail, apart=np.full(20, apart))
    one_side = chance(tail) / 2
    assert chance(known) == pytest.approx(2 * one_side if is_suspect else one_side)


def test_the_earlier_side_is_compared_with_the_nine_runs_before_it():
    values = np.array([9, *[0.0] * 8, 0.5, 0.1, 0.3, *[1.0] * 4, 2.0])
    series, is_earlier = np.repeat([0, 1], [12, 5]), np.isin(np.arange(17), [10, 11, 16])
    found = run_noise.distances_from_before(values, series, is_earlier)
    assert found[[10, 11]] == pytest.approx([0.1, 0.3])  # two runs of one side
    assert np.isnan(np.delete(found, [10, 11])).all()  # four runs before it are too few
    assert np.isnan(run_noise.distances_from_before(values, series, np.zeros(17, dtype=bool))).all()


def test_two_levels_that_come_again_are_modes():
    def modes(*runs):
        return run_noise.two_modes(np.array(runs) + np.random.default_rng(1).normal(0, 0.0005, len(runs)))

    assert modes(0, 0, -0.04, 0, 0, -0.04, 0, 0) == pytest.approx((0.96, 1.0), abs=0.003)
    step, spike, near = (0, 0, 0, 0, 0.04, 0.04, 0.04), (0, 0, 0, 0.04, 0, 0, 0), (0, 0.004, 0, 0.004, 0, 0.004)
    assert [modes(*runs) for runs in ((0, 0.04), step, spike, near)] == [None] * 4
