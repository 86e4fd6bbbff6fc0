"""The way from one stretch to another, and what of it no step tells."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.drift import level_drift
from analysis.stats.level_changes import level_changes


def noise(level, nights, seed, sd=0.005):
    return level * np.exp(np.random.default_rng(seed).normal(0, sd, nights))


def test_without_steps_the_whole_way_is_drift():
    found = level_drift(noise(10, 11, 1), noise(10.5, 10, 2), [])
    assert (found.before, found.now) == (pytest.approx(10, rel=0.005), pytest.approx(10.5, rel=0.005))
    assert found.drift == pytest.approx(found.ratio)
    assert found.low < 1.05 < found.high
    assert (found.steps, found.p < 1e-6) == (1.0, True)


def test_a_step_takes_its_part_and_widens_the_interval():
    values = np.concatenate((noise(10, 30, 3), noise(11, 30, 4)))
    steps = level_changes(values, [30])
    alone, with_step = level_drift(values[:11], values[-10:], []), level_drift(values[:11], values[-10:], steps)
    assert alone.drift == pytest.approx(1.1, rel=0.01)
    assert with_step.drift == pytest.approx(1.0, abs=0.01)
    assert with_step.ratio == pytest.approx(with_step.steps * with_step.drift)
    assert with_step.p > 0.01
    assert np.log(with_step.high / with_step.low) > np.log(alone.high / alone.low)


def test_the_interval_holds_the_drift_about_as_often_as_it_says():
    held = sum(
        found.low <= 1.03 <= found.high
        for seed in range(300)
        for found in [level_drift(noise(1, 11, seed), noise(1.03, 10, 1000 + seed), [])]
    )
    assert 0.90 <= held / 300 <= 0.995


def test_series_without_noise_are_fine():
    assert level_drift(np.full(5, 2.0), np.full(5, 2.0), []).p == 1.0
    assert level_drift(np.full(5, 2.0), np.full(5, 4.0), []).p == 0.0


def test_a_level_needs_two_points():
    with pytest.raises(ValueError, match="two points"):
        level_drift(np.ones(1), np.ones(5), [])
