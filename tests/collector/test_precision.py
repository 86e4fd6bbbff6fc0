"""Intervals of medians that cover as often as they say, and drift that is seen."""

from __future__ import annotations

import random

import pytest

from collector.measure.precision import drift, is_precise, relative_half_width


def test_the_interval_covers_the_median_nineteen_times_in_twenty():
    drawn = random.Random(7)
    inside = 0
    for _ in range(2000):
        samples = sorted(drawn.lognormvariate(0, 0.1) for _ in range(30))
        width = relative_half_width(samples)
        low, high = samples[9], samples[20]  # number 10 and 21: (30 - 10.7) / 2 and 1 + (30 + 10.7) / 2, rounded
        middle = (samples[14] + samples[15]) / 2
        assert width == pytest.approx((high - low) / 2 / middle)
        inside += low <= 1 <= high
    assert inside / 2000 == pytest.approx(0.957, abs=0.015)  # P(10 <= Binomial(30, 1/2) <= 20)


@pytest.mark.parametrize("samples", [[], [1.0] * 5, [0.0] * 10])
def test_few_samples_or_none_of_a_length_give_no_interval(samples):
    assert relative_half_width(samples) is None
    assert drift(samples) is None
    assert not is_precise(samples, 1.0)


def test_equal_samples_are_known_exactly():
    assert relative_half_width([2.0] * 6) == 0
    assert drift([2.0] * 6) == 0
    assert is_precise([2.0] * 6, 0.0)


def test_a_level_that_moves_is_seen():
    assert drift([1.0] * 10 + [1.05] * 10 + [1.1] * 10) == pytest.approx(0.1)
    assert drift([2.0, 1.9, 1.5, 1.0, 1.0, 1.0]) == pytest.approx(1 / 1.95 - 1)
