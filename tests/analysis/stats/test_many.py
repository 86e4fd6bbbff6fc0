"""Many series at once say what each says alone."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.changepoints import SHORTEST, detect
from analysis.stats.many import clip_many, detect_many, partition_many, pending_many
from analysis.stats.partition import cut_price, optimal_partition
from analysis.stats.pending import pending
from analysis.stats.spikes import clip_spikes


def synthetic(rows, nights, gaps=0.03, seed=1):
    """Levels with noise, up to three steps, spikes and gaps; a few series without any noise."""
    random = np.random.default_rng(seed)
    values = 100 + random.standard_normal((rows, nights))
    values[::7] = 100.0
    for row in values:
        for start in random.integers(nights, size=random.integers(4)):
            row[start:] += random.uniform(-8, 8)
    values += 20 * (random.random(values.shape) < 0.02)
    values[random.random(values.shape) < gaps] = np.nan
    return values


@pytest.mark.parametrize("nights", [3, 8, 10, 12, 40, 130])
def test_change_points_are_those_of_each_series_alone(nights):
    values = synthetic(150, nights)
    assert detect_many(values, min_effect=0.02) == [detect(row, min_effect=0.02) for row in values]


def test_some_of_the_synthetic_series_have_change_points_and_some_have_none():
    found = detect_many(synthetic(150, 130))
    assert any(found)
    assert not all(found)


@pytest.mark.parametrize("nights", [4, 12, 30, 45, 90])
def test_pending_shifts_are_those_of_each_series_alone(nights):
    values = synthetic(200, nights, seed=2)
    random = np.random.default_rng(3)
    for row in values[::2]:
        row[-random.integers(1, 22) :] += random.uniform(4, 12)
    cuts = detect_many(values)
    assert pending_many(values, cuts) == [pending(row, found) for row, found in zip(values, cuts, strict=True)]


def test_some_of_the_synthetic_tails_are_pending():
    values = synthetic(60, 60, seed=4)
    values[::2, -3:] += 30
    found = pending_many(values, detect_many(values))
    assert sum(one is not None for one in found) > 20


def test_clipping_and_cutting_are_those_of_each_series_alone():
    values = synthetic(130, 60, gaps=0)
    clipped = clip_many(values)
    assert np.array_equal(clipped, np.array([clip_spikes(row) for row in values]))
    prices = np.array([cut_price(row) for row in clipped])
    cut = [optimal_partition(row, price, SHORTEST) for row, price in zip(clipped, prices, strict=True)]
    assert partition_many(clipped, prices, SHORTEST) == cut


def test_infinity_and_nan_are_not_measured():
    values = np.r_[np.full(12, 1.0), np.full(12, 2.0)]
    row = np.insert(values, [3, 12, 20], [np.inf, np.nan, -np.inf])
    assert detect_many(row[None, :]) == [detect(row)] == [[14]]


def test_nothing_to_judge_is_fine_and_no_rows_are_refused():
    assert detect_many(np.empty((0, 30))) == []
    assert detect_many(np.full((2, 30), np.nan)) == [[], []]
    assert pending_many(np.full((2, 30), np.nan), [[], []]) == [None, None]
    assert clip_many(np.empty((0, 5))).shape == (0, 5)
    with pytest.raises(ValueError, match="rows"):
        detect_many(np.ones(30))
