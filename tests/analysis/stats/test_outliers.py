"""Single runs apart from their neighbours, and programs with two modes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.stats.run_noise import SideRuns, distances_from_before, distances_from_neighbours, tail_of, two_modes


def tail_with(spikes, size=0.04, runs=14, series=20):
    """The tail of quiet series of which so many runs are apart by `size`."""
    random = np.random.default_rng(3)
    values = random.normal(0, 0.002, runs * series)
    values[random.choice(runs * series, spikes, replace=False)] += size
    owners = np.repeat(np.arange(series), runs)
    distances, known = distances_from_neighbours(values, owners)
    return tail_of(distances[known], owners[known], series)


def chance(tail, change=0.04, earlier=1, later=1, agree=True):
    sides = (SideRuns(np.full(20, float(count)), np.full(20, agree)) for count in (earlier, later))
    return float(tail.chance(np.full(20, change), *sides)[0])


def test_the_chance_of_a_change_is_that_of_runs_as_far_apart():
    tail = tail_with(28)
    once = chance(tail)
    assert once == pytest.approx(0.2, abs=0.08)
    assert chance(tail, earlier=2, later=2) == pytest.approx(once**2 / 2, rel=0.01)
    assert chance(tail, later=2) == pytest.approx(once / 2 + once**2 / 4, rel=0.01)
    # One of two runs that is apart by 4 % makes a change of 2 %, but not where both show it.
    assert chance(tail, change=0.02, earlier=2, later=2, agree=False) >= 2 * once
    assert chance(tail, change=0.02, earlier=2, later=2) <= once**2 / 2
    assert chance(tail, change=0.4) == 0
    assert chance(tail_with(0)) == 0


@pytest.mark.parametrize(("apart", "is_suspect"), [(0.0, False), (0.03, False), (-0.01, False), (-0.03, True)])
def test_a_base_like_the_runs_before_it_is_not_the_run_that_is_apart(apart, is_suspect):
    """Base must lie on the other side of those runs, by more than half of the change, to explain it."""
    tail = tail_with(28)
    known = replace(tail, apart=np.full(20, apart))
    one_side = chance(tail) / 2
    assert chance(known) == pytest.approx(2 * one_side if is_suspect else one_side)


def test_the_earlier_side_is_compared_with_the_nine_runs_before_it():
    values = np.array([9, *[0.0] * 8, 0.5, 0.1, 0.3, *[1.0] * 4, 2.0])
    series, is_earlier = np.repeat([0, 1], [12, 5]), np.isin(np.arange(17), [10, 11, 16])
    found = distances_from_before(values, series, is_earlier)
    assert found[[10, 11]] == pytest.approx([0.1, 0.3])  # two runs of one side
    assert np.isnan(np.delete(found, [10, 11])).all()  # four runs before it are too few
    assert np.isnan(distances_from_before(values, series, np.zeros(17, dtype=bool))).all()


@pytest.mark.parametrize(
    ("runs", "levels"),
    [
        ([0, 0, -0.04, 0, 0, -0.04, 0, 0], (0.96, 1.0)),
        ([0, 0.04], None),
        ([0, 0, 0, 0, 0.04, 0.04, 0.04], None),  # a step
        ([0, 0, 0, 0.04, 0, 0, 0], None),  # a spike
        ([0, 0.004, 0, 0.004, 0, 0.004], None),  # too near to matter
    ],
)
def test_two_levels_that_come_again_are_modes(runs, levels):
    noise = np.random.default_rng(1).normal(0, 0.0005, len(runs))
    found = two_modes(np.array(runs) + noise)
    assert found == (None if levels is None else pytest.approx(levels, abs=0.003))
