"""Whether the ends of a bisection differ, from synthetic run-level values; tests/jobs/bisect has whole searches."""

import pytest

from analysis.history.bisection import Word, compare_ends

GOOD, BAD = [0.0, 0.01, -0.01], [0.2, 0.21, 0.19]


def test_ends_that_differ_are_told_with_the_change_and_its_interval():
    found = compare_ends(GOOD, BAD, 0.01, 0.02, {})
    assert found.word is Word.DIFFERENT
    assert found.change == pytest.approx(0.2)
    # Two means of three with s = 0.01 and 4 degrees of freedom: 2.776 x 0.01 x sqrt(2/3).
    assert (found.low, found.high) == pytest.approx((0.2 - 0.02267, 0.2 + 0.02267), abs=1e-4)
    assert found.p < 1e-4
    # A change that is real and does not matter makes no difference.
    assert compare_ends(GOOD, BAD, 0.01, 0.3, {}).word is Word.SAME
    assert compare_ends([0.0, 0.5, -0.5], [0.2, 0.7, -0.3], 0.01, 0.02, {}).word is Word.OPEN
    assert compare_ends(GOOD, [0.001, 0.009, -0.01], 0.01, 0.05, {}).word is Word.SAME


def test_runs_of_builds_between_tell_of_the_noise_and_not_of_the_level():
    quiet = compare_ends(GOOD, BAD, 0.01, 0.02, {"x": [5.0, 5.01, 4.99]})
    loud = compare_ends(GOOD, BAD, 0.01, 0.02, {"x": [5.0, 6.0, 4.0]})
    assert quiet.change == loud.change
    assert quiet.word is Word.DIFFERENT
    assert loud.word is Word.OPEN
    assert quiet.high - quiet.low < compare_ends(GOOD, BAD, 0.01, 0.02, {}).high - 0.2 + 0.0227
