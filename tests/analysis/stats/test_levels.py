"""Levels on both sides of a change point, where the change can be, and the drift that no step explains."""

import math

import numpy as np
import pytest

from analysis.stats.changepoints import detect, detect_rows
from analysis.stats.levels import level_changes, level_drift, new_levels, pending_shifts


def noisy(levels, sd=0.01, seed=1):
    """Log-normal noise around levels, each (level, nights)."""
    random = np.random.default_rng(seed)
    flat = np.repeat([level for level, _ in levels], [nights for _, nights in levels])
    return flat * np.exp(random.normal(0, sd, flat.size))


def test_the_interval_holds_the_ratio_about_as_often_as_it_says():
    held = 0
    for seed in range(300):
        (found,) = level_changes(noisy([(1.0, 20), (1.1, 20)], 0.02, seed), [20])
        held += found.low <= 1.1 <= found.high
    assert 0.90 <= held / 300 <= 0.995


def test_a_level_is_of_the_nearest_twenty_points_and_of_its_own_piece():
    values = np.r_[np.full(10, 56.0), np.full(20, 50.0), np.linspace(90, 100, 20), np.full(8, 120.0), np.full(20, 60.0)]
    found = level_changes(values, [30, 50, 58])
    assert found[0].before == pytest.approx(50)
    assert found[1].after == pytest.approx(120)
    assert found[1].before == pytest.approx(95, rel=0.01)
    assert [one.now for one in found] == pytest.approx([60.0] * 3)


def test_the_true_place_is_among_the_possible_ones_nearly_always():
    held = 0
    for seed in range(200):
        values = noisy([(100, 25), (102.5, 25)], 0.012, seed)
        left = [((np.log(values[:at]) - np.log(values[:at]).mean()) ** 2).sum() for at in range(5, 46)]
        right = [((np.log(values[at:]) - np.log(values[at:]).mean()) ** 2).sum() for at in range(5, 46)]
        best = 5 + int(np.argmin(np.add(left, right)))
        (found,) = level_changes(values, [best])
        held += found.earliest <= 25 <= found.latest
    assert held / 200 >= 0.93


def test_without_steps_the_whole_way_is_drift_and_no_noise_is_fine():
    found = level_drift(noisy([(10, 11)], 0.005, 1), noisy([(10.5, 10)], 0.005, 2), [])
    assert (found.before, found.now) == (pytest.approx(10, rel=0.005), pytest.approx(10.5, rel=0.005))
    assert found.drift == pytest.approx(found.ratio)
    assert found.low < 1.05 < found.high
    assert (found.steps, found.p < 1e-6) == (1.0, True)
    assert [level_drift(np.full(5, 2.0), np.full(5, now), []).p for now in (2.0, 4.0)] == [1.0, 0.0]
    (found,) = level_changes(np.r_[np.full(10, 1.0), [np.nan] * 3, np.full(10, 2.0)], [13])  # gaps keep their places
    assert (found.earliest, found.at, found.latest) == (13, 13, 13)
    assert (found.before, found.after, found.p) == (pytest.approx(1.0), pytest.approx(2.0), 0.0)


def test_new_levels_are_large_enough_and_control_false_discoveries():
    random = np.random.default_rng(8)
    table = np.exp(random.normal(0, 0.01, (300, 60)))
    table[:30, 30:] *= 1.05
    table[30:60, 30:] *= 1.01
    table[60, -3:] *= 1.1
    found = new_levels([table[:150], table[150:]], 0.02)
    assert sum(level.table == 0 and level.row < 30 for level in found) >= 28
    assert [(level.row, level.is_pending) for level in found if level.table or level.row >= 30] == [(60, True)]
    assert all(level.change.q <= 0.05 for level in found)


# A shift at the end of a series that is too young to be a change point


def pending(values, change_points, **options):
    return pending_shifts(np.array([values], dtype=float), [change_points], **options)[0]


def normal(count, seed=0):
    return 100 + np.random.default_rng(seed).standard_normal(count)


def test_a_tail_shorter_than_a_segment_is_pending_and_no_change_point():
    for nights in (2, 4):
        values = np.concatenate((normal(60), normal(nights, 1) + 8))
        assert (detect(values), pending(values, [])) == ([], 60)
    lower = np.concatenate((normal(60), [math.nan], normal(2, 1) - 8, [math.nan], normal(1, 2) - 8))
    assert pending(lower, []) == 61
    # After a change point it is judged by the new level.
    assert pending(np.concatenate((normal(60), normal(30, 1) + 8)), [60]) is None
    values = np.concatenate((normal(60), normal(30, 1) + 8, normal(3, 2)))
    assert pending(values, detect(values)) == 90


def test_a_small_shift_does_not_matter_and_of_little_nothing_is_said():
    values = np.concatenate((normal(60) * 0.01 + 99, np.full(3, 100.5)))
    assert pending(values, [], min_effect=0.003) == 60
    for little in (values, [], [1.0, 1.0, 9.0, 9.0], [math.nan] * 9, [5.0] * 30):
        assert pending(little, []) is None


def test_noise_is_rarely_pending():
    """At most 1 series in 50 of independent normal noise (measured: about 1 in 300)."""
    assert sum(pending(normal(100, seed), []) is not None for seed in range(300)) <= 6


def test_series_of_different_lengths_do_not_mix():
    random = np.random.default_rng(3)
    values = 100 + random.standard_normal((200, 45))
    values[random.random(values.shape) < 0.05] = math.nan
    values[:50, :25] = math.nan
    for row in values[::2]:
        row[-random.integers(1, 22) :] += random.uniform(4, 12)
    cuts = detect_rows(values)
    assert cuts == [detect(row) for row in values]
    found = pending_shifts(values, cuts)
    assert found == [pending(row, of_row) for row, of_row in zip(values, cuts, strict=True)]
    assert 10 < sum(one is not None for one in found) < 180
