"""What `detect` promises: on made-up series, and on those that people labelled."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from analysis.stats.changepoints import detect, detect_rows, optimal_partition
from tests.analysis.stats.segmentation_scores import covering, f1

ROOT = Path(__file__).resolve().parents[3]
LABELLED = ROOT.parent / "shared" / "changepoints" / "dev.json"
SEEDS = st.integers(0, 10_000)


def _noise(count, seed=0, correlation=0.0):
    """AR(1) noise of variance 1."""
    white = np.random.default_rng(seed).standard_normal(count + 100)
    return lfilter([1], [1, -correlation], white)[100:] * math.sqrt(1 - correlation**2)


def _steps(seed=0, lengths=(80, 60, 100), levels=(100.0, 108.0, 95.0)):
    level = np.repeat(levels, lengths)
    return level + _noise(level.size, seed)


# What is no change point


def test_short_constant_empty_and_drifting_series_have_none():
    drift = 100 + np.linspace(0, 5, 400) + 2 * _noise(400)
    for values in ([], [1.0, 2.0] * 4 + [1.0], [0.0] * 50, [0.1] * 333, [math.nan] * 40, drift):
        assert detect(values) == []


@pytest.mark.parametrize("size", [5, -50, 1e6])
@pytest.mark.parametrize("at", [0, 30, 59])
def test_a_single_spike_is_none_and_hides_none(size, at):
    values = 100 + _noise(60)
    values[at] += size
    assert detect(values) == []
    values[40:] += 5
    assert detect(values) == [40]


@pytest.mark.parametrize(("correlation", "nights", "limit"), [(0.0, 30, 1), (0.0, 200, 1), (0.5, 200, 30)])
def test_false_alarms_on_noise(correlation, nights, limit):
    """In at most 1 series in 100; with waves, which look like steps to people too, in more (docs/statistics.md)."""
    alarms = [detect(100 + 2 * _noise(nights, seed, correlation)) for seed in range(100)]
    assert sum(map(bool, alarms)) <= limit


# What is one


def test_a_step_of_three_sd_with_ten_nights_each_side_is_found():
    """In at least 95 of 100, within the margin of 5; measured .98."""
    values = [100 + 2 * (_noise(20, seed) + np.repeat([0.0, 3.0], 10)) for seed in range(100)]
    assert sum(any(abs(at - 10) <= 5 for at in detect(one)) for one in values) >= 95


def test_small_steps_are_left_out_where_they_are_shown_to_be_small():
    values = np.repeat([100.0, 103.0], 100) + 0.3 * _noise(200)
    assert detect(values) == [100]
    assert detect(values, min_effect=0.05) == []
    assert detect(np.repeat([100.0, 100.5], 100) + 0.05 * _noise(200)) == []
    assert detect(np.repeat([100.0, 100.5], 100) + 0.05 * _noise(200), min_effect=0.0) == [100]


# Invariance


@given(SEEDS, st.floats(1e-9, 1e9))
@settings(max_examples=25, deadline=None)
def test_the_unit_does_not_matter(seed, scale):
    values = _steps(seed)
    assert detect(values * scale) == detect(values) == detect(-values)


@given(SEEDS, st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_missing_nights_keep_their_place(seed, count):
    values, random = _steps(seed), np.random.default_rng(seed)
    places = np.sort(random.choice(values.size + count, values.size, replace=False))
    gappy = np.full(values.size + count, random.choice([math.nan, math.inf, -math.inf]))
    gappy[places] = values
    assert detect(gappy) == [places[at] for at in detect(values)]


@given(st.lists(st.floats(width=64), max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_numbers_give_ascending_indices_of_measured_nights(values):
    found = detect(values)
    assert found == sorted(set(found))
    assert all(0 < at < len(values) and math.isfinite(values[at]) for at in found)


def test_refuses_what_is_no_series():
    for values in ([[1.0, 2.0]], 3.0, ["fast", "slow"]):
        with pytest.raises((ValueError, TypeError)):
            detect(values)
    with pytest.raises(ValueError, match="min_effect"):
        detect([1.0] * 20, min_effect=-0.01)
    with pytest.raises(ValueError, match="rows"):
        detect_rows(np.ones(30))


# Many series


def _synthetic(rows, nights, seed=1):
    """Levels with noise, up to three steps, spikes and gaps, and a few series without any noise."""
    random = np.random.default_rng(seed)
    values = 100 + random.standard_normal((rows, nights))
    values[::7] = 100.0
    for row in values:
        for start in random.integers(nights, size=random.integers(4)):
            row[start:] += random.uniform(-8, 8)
    values += 20 * (random.random(values.shape) < 0.02)
    values[random.random(values.shape) < 0.03] = np.nan
    return values


@pytest.mark.parametrize("nights", [3, 130])
def test_series_do_not_mix_whatever_their_gaps(nights):
    values = _synthetic(150, nights)
    found = detect_rows(values, min_effect=0.02)
    assert found == [detect(row, min_effect=0.02) for row in values]
    assert detect_rows(np.empty((0, nights))) == []
    assert nights < 40 or (any(found) and not all(found))


# People


@pytest.mark.skipif(not LABELLED.exists(), reason="the labelled series are not part of the project")
def test_agrees_with_people():
    scores = []
    for series in json.loads(LABELLED.read_text()).values():
        values, marks = np.array(series["y"], dtype=float), list(series["annotations"].values())
        found = detect(values)
        scores.append((f1(marks, found), covering(marks, found, len(values))))
    assert (np.mean(scores, axis=0) >= (0.86, 0.78)).all()


# Optimal partitioning alone


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
    found = optimal_partition(values[None, :], np.array([price]), shortest)[0]
    assert _cost(values, found, price) == pytest.approx(best)
