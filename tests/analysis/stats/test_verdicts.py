"""Verdicts on simulated cells, of which the truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis.stats import verdicts
from analysis.stats.averages import geomean, robust_sigma
from analysis.stats.run_noise import fit_prior, moderate
from analysis.stats.verdicts import Verdict, difference, false_discovery_rates, further_runs, geomean_interval, judge
from tests.analysis.stats.test_run_noise import within


def nights(cells, runs, shift=0.0, seed=1, sd=0.01, history=10):
    """ln latencies of cells of uneven noise: a history, `runs` of base and `runs` of new, which is slower by `shift`."""
    rng = np.random.default_rng(seed)
    noise = sd * np.exp(rng.normal(0, 0.5, (cells, 1)))
    level = rng.normal(0, 1, (cells, 1))
    drawn = [level + noise * rng.standard_normal((cells, count)) for count in (history, runs, runs)]
    return drawn[0], drawn[1], drawn[2] + np.log1p(shift)


def judged(history, base, new):
    """What the whole chain says: noise of each cell, shrunk, the difference, its verdict."""
    sides, cells = [history, base, new], np.arange(len(base))
    values = np.concatenate([side.ravel() for side in sides])
    owners = np.concatenate([np.repeat(cells, side.shape[1]) for side in sides])
    groups = np.concatenate([np.repeat(at * len(base) + cells, side.shape[1]) for at, side in enumerate(sides)])
    squares, dfs = within(values, groups, owners, len(base))
    variances = squares / dfs
    variance, df = moderate(variances, dfs, fit_prior(variances, dfs))
    runs = [np.full(len(base), side.shape[1]) for side in (base, new)]
    found = difference(new.mean(axis=1) - base.mean(axis=1), *runs, variance, df)
    return found, np.array(judge(found, false_discovery_rates(found.p), 0.02, lower_is_better=True))


def test_the_same_code_twice_alarms_less_than_once_in_1500_cells():
    alarms = [
        int(np.isin(judged(*nights(1500, 1, seed=seed))[1], [Verdict.REGRESSED, Verdict.IMPROVED]).sum())
        for seed in range(10)
    ]
    assert sum(alarms) / len(alarms) < 1


def test_intervals_hold_the_truth_as_often_as_they_say():
    found, _ = judged(*nights(4000, 2, shift=0.03, seed=7))
    truth = np.log1p(0.03)
    assert np.mean((found.low <= truth) & (truth <= found.high)) == pytest.approx(0.95, abs=0.015)


def test_real_slowdowns_are_found_and_called_what_they_are():
    history, base, new = nights(600, 4, seed=5, sd=0.005)
    new[:60] += np.log1p(0.05)
    new[60:90] -= np.log1p(0.05)
    _, found = judged(history, base, new)
    assert np.mean(found[:60] == Verdict.REGRESSED) > 0.95
    assert np.mean(found[60:90] == Verdict.IMPROVED) > 0.95
    # Of what is called a change one in twenty may be none, by the very promise of the false discovery rate.
    called = np.isin(found, [Verdict.REGRESSED, Verdict.IMPROVED])
    assert called[90:].sum() <= 0.05 * called.sum()
    assert np.mean(found[90:] == Verdict.UNCHANGED) > 0.9


def one(change, sd, base=1, new=1, df=20.0):
    arrays = (np.array([float(value)]) for value in (base, new, sd**2, df))
    return difference(np.array([change]), *arrays)


def test_a_difference_has_the_interval_and_p_of_the_t_distribution():
    found = one(0.04, 0.01, base=2, new=4, df=9)
    error = 0.01 * np.sqrt(1 / 2 + 1 / 4)
    assert found.error[0] == pytest.approx(error)
    assert found.p[0] == pytest.approx(2 * stats.t.sf(0.04 / error, 9))
    assert found.high[0] - 0.04 == pytest.approx(stats.t.ppf(0.975, 9) * error)
    assert found.low[0] == pytest.approx(2 * 0.04 - found.high[0])


@pytest.mark.parametrize(
    ("change", "sd", "lower_is_better", "expected"),
    [
        (0.10, 0.002, True, Verdict.REGRESSED),
        (0.10, 0.002, False, Verdict.IMPROVED),
        (-0.10, 0.002, False, Verdict.REGRESSED),
        (0.001, 0.002, True, Verdict.UNCHANGED),
        (0.010, 0.0005, True, Verdict.UNCHANGED),  # certainly there, and too small to matter
        (0.10, 0.08, True, Verdict.INCONCLUSIVE),
        (0.001, 0.02, True, Verdict.INCONCLUSIVE),  # nothing seen, nothing ruled out
    ],
)
def test_a_verdict_needs_certainty_and_a_size_that_matters(change, sd, lower_is_better, expected):
    found = one(change, sd)
    assert judge(found, false_discovery_rates(found.p), 0.02, lower_is_better=lower_is_better)[0] == expected


def test_adjusted_p_is_that_of_benjamini_and_hochberg_over_what_is_known():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.5])
    found = false_discovery_rates(p)
    assert np.isnan(found[1])
    assert found[[0, 2, 3, 4]] == pytest.approx([0.04, 0.04 * 4 / 3, 0.04 * 4 / 3, 0.5])
    assert np.isnan(false_discovery_rates(np.array([np.nan]))).all()


def test_advice_on_further_runs_is_enough_and_given_only_where_they_help():
    (more,) = further_runs(one(0.0, 0.02), np.ones(1), np.ones(1), 0.02)
    half = [one(0.0, 0.02, base=1 + runs, new=1 + runs, df=20 + 2 * runs).high[0] for runs in (more, more - 1)]
    assert half[0] <= np.log1p(0.02) / 2 < half[1]
    assert further_runs(one(0.0, 0.5), np.ones(1), np.ones(1), 0.02).tolist() == [np.inf]
    assert further_runs(one(0.0, 0.0001), np.ones(1), np.ones(1), 0.02).tolist() == [0]
    assert np.isnan(further_runs(one(0.0, np.nan), np.ones(1), np.ones(1), 0.02)).all()


# Intervals of averages over models, by drawing the models anew


def names(count):
    return [f"model{number}" for number in range(count)]


def test_the_interval_of_many_models_is_that_of_a_textbook():
    logs = np.random.default_rng(7).normal(0.02, 0.05, 400)
    found = geomean_interval(np.exp(logs), names(400))
    half = 1.96 * logs.std(ddof=1) / math.sqrt(400)
    assert math.log(found.low) == pytest.approx(logs.mean() - half, abs=0.1 * half)
    assert math.log(found.high) == pytest.approx(logs.mean() + half, abs=0.1 * half)


def test_cells_of_one_model_are_one_witness():
    once = geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3], names(5))
    assert geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3] * 4, names(5) * 4) == once
    assert geomean_interval([1.1] * 50, [f"model{number % 4}" for number in range(50)]) is None
    # Of a handful nothing is said.
    for few in (0, 4):
        assert geomean_interval([1.1] * few, names(few)) is None
        assert verdicts.sums_interval([1.0, math.nan] * few, [1.1, 1.0] * few, names(2 * few)) is None


def test_averages_leave_out_the_unmeasured_and_refuse_what_has_no_log():
    assert geomean([2.0, None, 8.0, math.nan]) == pytest.approx(4)
    for bad in (0.0, math.inf):
        with pytest.raises(ValueError, match="positive"):
            geomean([1.0, bad])
    assert robust_sigma([1, 1, 2, 2, 4, 6, 9]) == pytest.approx(1.4826)
