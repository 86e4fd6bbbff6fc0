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


def test_cells_of_one_model_are_one_witness():
    once = geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3], names(5))
    assert geomean_interval([0.9, 1.0, 1.1, 1.2, 1.3] * 4, names(5) * 4) == once
    assert geomean_interval([1.1] * 50, [f"model{number % 4}" for number in range(50)]) is None


@pytest.mark.parametrize("count", [0, 4])
def test_of_a_handful_nothing_is_said(count):
    assert geomean_interval([1.1] * count, names(count)) is None
    assert sums_interval([1.0, math.nan] * count, [1.1, 1.0] * count, names(2 * count)) is None


@pytest.mark.parametrize("count", [5, 150])
def test_the_ends_are_quantiles_of_resampled_averages(count):
    rng = np.random.default_rng(count)
    base, new = rng.uniform(1, 2, count), rng.uniform(1, 2, count)
    # Models by name are drawn in the order of their names, so as numbers they are in that of the entries.
    drawn = np.random.default_rng(20_260_801).integers(0, count, (1000, count))
    expected = np.quantile(new[drawn].sum(axis=1) / base[drawn].sum(axis=1), (0.025, 0.975))
    assert ends(sums_interval(base, new, np.arange(count))) == pytest.approx(tuple(expected), rel=1e-12)
