"""Intervals of averages over models, by drawing the models anew."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.stats.verdicts import geomean_interval, sums_interval


def names(count):
    return [f"model{number}" for number in range(count)]


def ends(found):
    return found.low, found.high


def test_the_interval_of_many_models_is_that_of_a_textbook():
    logs = np.random.default_rng(7).normal(0.02, 0.05, 400)
    found = geomean_interval(np.exp(logs), names(400))
    half = 1.96 * logs.std(ddof=1) / math.sqrt(400)
    assert math.log(found.low) == pytest.approx(logs.mean() - half, abs=0.1 * half)
    assert math.log(found.high) == pytest.approx(logs.mean() + half, abs=0.1 * half)


def test_it_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    found = [geomean_interval(np.exp(rng.normal(0, 0.05, 30)), names(30)) for _ in range(300)]
    hits = [within.low > 1 or within.high < 1 for within in found]
    assert 0.90 <= 1 - np.mean(hits) <= 0.98


def test_cells_of_one_model_are_one_witness():
    once = geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3], names(5))
    assert geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3] * 4, names(5) * 4) == once
    assert geomean_interval([1.1] * 50, [f"model{number % 4}" for number in range(50)]) is None


@pytest.mark.parametrize("count", [0, 1, 4])
def test_of_a_handful_nothing_is_said(count):
    assert geomean_interval([1.1] * count, names(count)) is None
    assert sums_interval([1.0] * count, [1.1] * count, names(count)) is None


def test_what_was_not_measured_is_left_out():
    values = [1.1, 1.2, 1.3, 1.1, 1.2, math.nan, 0.0, math.inf]
    assert geomean_interval(values, names(8)) == geomean_interval(values[:5], names(5))
    base = [1.0, 2.0, 3.0, 4.0, 5.0, math.nan, 1.0]
    new = [1.1, 2.1, 3.3, 4.1, 5.5, 1.0, math.nan]
    assert sums_interval(base, new, names(7)) == sums_interval(base[:5], new[:5], names(5))


@pytest.mark.parametrize("count", [5, 12, 150])
def test_the_ends_are_quantiles_of_resampled_averages(count):
    rng = np.random.default_rng(count)
    base, new = rng.uniform(1, 2, count), rng.uniform(1, 2, count)
    # Models by name are drawn in the order of their names, so as numbers they are in that of the entries.
    drawn = np.random.default_rng(20_260_801).integers(0, count, (1000, count))
    expected = np.quantile(new[drawn].sum(axis=1) / base[drawn].sum(axis=1), (0.025, 0.975))
    assert ends(sums_interval(base, new, np.arange(count))) == pytest.approx(tuple(expected), rel=1e-12)
