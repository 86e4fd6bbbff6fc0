"""How a profile becomes the device time of one call."""

from __future__ import annotations

import pytest

from collector.measure.profiling import busy_ms

MS = 1e6


def calls_of(*lengths):
    """Two kernels a call, one after the other, each call 100 ms after the one before."""
    return [
        (number * 100 * MS + at, length * MS / 2) for number, length in enumerate(lengths) for at in (0, length * MS)
    ]


def test_a_call_that_another_process_made_longer_changes_nothing():
    assert busy_ms(calls_of(2, 2, 2, 2, 2), 5) == pytest.approx(2.0)
    assert busy_ms(calls_of(2, 2, 9, 2, 2), 5) == pytest.approx(2.0)


def test_kernels_that_overlap_count_once():
    assert busy_ms([(0, 2 * MS), (MS, 2 * MS), (50 * MS, 2 * MS), (51 * MS, 2 * MS)], 2) == pytest.approx(3.0)


def test_calls_with_other_numbers_of_kernels_give_the_mean():
    assert busy_ms([*calls_of(2, 2), (300 * MS, MS)], 2) == pytest.approx(2.5)
