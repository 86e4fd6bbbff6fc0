"""What `detect` promises: on made-up series, and on those that people labelled."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from analysis.stats.changepoints import detect
from benchmarks.segmentation_scores import covering, f1

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


# People


@pytest.mark.skipif(not LABELLED.exists(), reason="the labelled series are not part of the project")
def test_agrees_with_people():
    scores = []
    for series in json.loads(LABELLED.read_text()).values():
        values, marks = np.array(series["y"], dtype=float), list(series["annotations"].values())
        found = detect(values)
        scores.append((f1(marks, found), covering(marks, found, len(values))))
    assert (np.mean(scores, axis=0) >= (0.86, 0.78)).all()
