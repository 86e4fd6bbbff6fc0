"""A shift at the end of a series that is too young to be a change point."""

import math

import numpy as np
import pytest

from analysis.stats.changepoints import detect, detect_rows
from analysis.stats.levels import pending_shifts


def pending(values, change_points, **options):
    return pending_shifts(np.array([values], dtype=float), [change_points], **options)[0]


def _noise(count, seed=0):
    return 100 + np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("nights", [2, 4])
def test_a_tail_shorter_than_a_segment_is_pending_and_no_change_point(nights):
    values = np.concatenate((_noise(60), _noise(nights, 1) + 8))
    assert detect(values) == []
    assert pending(values, []) == 60


def test_a_shift_after_a_change_point_is_judged_by_the_new_level():
    assert pending(np.concatenate((_noise(60), _noise(30, 1) + 8)), [60]) is None
    values = np.concatenate((_noise(60), _noise(30, 1) + 8, _noise(3, 2)))
    assert pending(values, detect(values)) == 90


def test_both_directions_and_missing_nights():
    values = np.concatenate((_noise(60), [math.nan], _noise(2, 1) - 8, [math.nan], _noise(1, 2) - 8))
    assert pending(values, []) == 61


def test_a_small_shift_does_not_matter():
    values = np.concatenate((_noise(60) * 0.01 + 99, np.full(3, 100.5)))
    assert pending(values, []) is None
    assert pending(values, [], min_effect=0.003) == 60


def test_too_little_to_judge():
    assert pending([], []) is None
    assert pending([1.0, 1.0, 9.0, 9.0], []) is None
    assert pending([math.nan] * 9, []) is None
    assert pending([5.0] * 30, []) is None


def test_noise_is_rarely_pending():
    """At most 1 series in 50 of independent normal noise (measured: about 1 in 300)."""
    assert sum(pending(_noise(100, seed), []) is not None for seed in range(300)) <= 6


def test_series_of_different_lengths_do_not_mix():
    random = np.random.default_rng(3)
    values = 100 + random.standard_normal((200, 45))
    values[random.random(values.shape) < 0.05] = math.nan
    values[:50, :25] = math.nan
    for row in values[::2]:
        row[-random.integers(1, 22) :] += random.uniform(4, 12)
    cuts = detect_rows(values)
    found = pending_shifts(values, cuts)
    assert found == [pending(row, of_row) for row, of_row in zip(values, cuts, strict=True)]
    assert 10 < sum(one is not None for one in found) < 180
