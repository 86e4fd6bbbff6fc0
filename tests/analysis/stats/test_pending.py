"""A shift at the end of a series that is too young to be a change point."""

import math

import numpy as np
import pytest

from analysis.stats.changepoints import detect
from analysis.stats.pending import pending


def _noise(count, seed=0):
    return 100 + np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("nights", [2, 3, 4])
def test_a_tail_shorter_than_a_segment_is_pending_and_no_change_point(nights):
    values = np.concatenate((_noise(60), _noise(nights, 1) + 8))
    assert detect(values) == []
    assert pending(values, []) == 60


def test_one_night_is_a_spike():
    assert pending(np.append(_noise(60), 120.0), []) is None


def test_an_established_step_is_not_pending():
    values = np.concatenate((_noise(60), _noise(30, 1) + 8))
    assert detect(values) == [60]
    assert pending(values, [60]) is None


def test_a_shift_after_a_change_point_is_judged_by_the_new_level():
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


def test_refuses_a_table():
    with pytest.raises(ValueError, match="one row"):
        pending([[1.0, 2.0]], [])  # type: ignore[list-item]
