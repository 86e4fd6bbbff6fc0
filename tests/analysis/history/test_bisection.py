"""Decisions of a bisection: the ends told apart, a build put on a side, from synthetic run-level values."""

import math

import numpy as np
import pytest

from analysis.history.bisection import RISK, Word, compare_ends, find_side, level_of, looks

GOOD, BAD = [0.0, 0.01, -0.01], [0.2, 0.21, 0.19]


def test_looks_come_after_half_as_many_more_each_time_and_share_the_risk():
    assert [looks(*ends) for ends in ((3, 12), (2, 2), (1, 1))] == [[3, 5, 8, 12], [2], [1]]
    with pytest.raises(ValueError, match="at least two runs"):
        looks(1, 5)
    assert level_of(2, 1) == pytest.approx(RISK / 2)
    assert level_of(16, 4) == pytest.approx(RISK / (5 * 4))
    assert level_of(17, 4) < level_of(16, 4)


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


SIDES = {
    Word.GOOD: ([0.01, 0.0, 0.0], [-0.5, -0.51, -0.5]),
    Word.BAD: ([0.2, 0.19, 0.2],),
    Word.OPEN: ([0.1, 0.11, 0.09],),
}


@pytest.mark.parametrize(("word", "builds"), SIDES.items())
def test_a_build_is_on_the_side_of_the_middle_that_it_is_past(word, builds):
    for values in builds:
        assert find_side(values, GOOD, BAD, 0.01, {}).word is word
        turned = ([-one for one in runs] for runs in (values, GOOD, BAD))
        assert find_side(*turned, 0.01, {}).word is word


@pytest.mark.parametrize("heavy", [False, True])
def test_a_side_is_wrong_no_more_often_than_its_level_says(heavy):
    """2,000 synthetic builds with 3 runs each of a 6 % change under 2 % noise, normal and with heavy tails."""
    rng = np.random.default_rng(11)

    def runs(level):
        noise = rng.standard_t(4, 3) / math.sqrt(2) if heavy else rng.standard_normal(3)
        return (level + 0.02 * noise).tolist()

    level, wrong, decided = 0.05, 0, 0
    for _ in range(2000):
        word = find_side(runs(0.06), runs(0.0), runs(0.06), level, {}).word
        wrong += word is Word.GOOD
        decided += word is not Word.OPEN
    assert wrong / 2000 <= level
    assert decided / 2000 > 0.2
