"""Order, division among GPUs, and predicted time: synthetic costs, and properties over random ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.plan.cost import CostModel
from jobs.plan.schedule import group_of, longest_first, predict, shares
from tests.factories import CUDAGRAPHS, DEFAULT, cell, passing

SECONDS = st.lists(st.integers(0, 300), min_size=1, max_size=25)


def planned(seconds, device="cpu", **held):
    """Cells of one model each that take these seconds, and a model that knows it."""
    cells = [cell(f"m{number:03}", device=device) for number in range(len(seconds))]
    details = {"held_s": held} if held else {}
    items = [passing(which, wall_s=float(took), details=details) for which, took in zip(cells, seconds, strict=True)]
    return cells, CostModel.learn(items)


def names(cells):
    return [int(item.model[1:]) for item in cells]


def test_the_longest_go_first_and_equals_keep_their_order():
    cells, model = planned([10, 100, 20, 100, 10, 100])
    assert names(longest_first(cells, model, 3)) == [1, 3, 5, 2, 0, 4]
    cells, model = planned([10, 10, 20])
    assert predict(cells, model, 2).total_s == 30
    assert predict(longest_first(cells, model, 2), model, 2).total_s == 20


@pytest.mark.parametrize(("budget_s", "order"), [(47, [0, 1, 2]), (48, [1, 0, 2]), (10, [0, 1, 2])])
def test_a_budget_that_is_hardly_met_keeps_the_plans_own_order(budget_s, order):
    cells, model = planned([5, 20, 15])
    assert predict(cells, model, 1).total_s == 40
    assert names(longest_first(cells, model, 1, budget_s)) == order


@pytest.mark.parametrize(
    ("seconds", "held", "expected"),
    [
        ([10, 20, 5, 5], {}, {1: 40, 2: 20, 9: 20}),
        ([10, 10, 10, 10], {"measure": 4}, {1: 40, 2: 4 * 4 + 2 * 6, 4: 4 * 4 + 6}),  # while one measures nobody works
        ([10, 10, 10, 10], {"tune": 3, "measure": 1}, {1: 40, 2: 4 * 4 + 2 * 6}),  # nor while one tunes
        ([], {}, {3: 0}),
    ],
)
def test_workers_share_the_work_out_as_they_get_free(seconds, held, expected):
    cells, model = planned(seconds, **held)
    assert {workers: predict(cells, model, workers).total_s for workers in expected} == expected


def test_long_cells_are_spread_over_the_night_and_the_short_ones_end_it():
    cells, model = planned([300] * 8 + [100] * 40, "cuda")
    ordered = names(longest_first(cells, model, 4))
    long = [place for place, number in enumerate(ordered) if number < 8]
    assert long[0] == 0
    assert sorted(ordered) == list(range(48))
    assert max(later - place for place, later in pairwise(long)) <= 6
    assert 24 <= long[-1] <= 40


@given(SECONDS, st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_longest_first_loses_no_cell_and_keeps_the_workers_busy(seconds, workers):
    cells, model = planned(seconds)
    ordered = longest_first(cells, model, workers)
    assert sorted(names(ordered)) == names(cells)
    share, longest = sum(seconds) / workers, max(seconds)
    # What no schedule beats, and what none that leaves nobody idle exceeds (Graham 1966).
    assert max(share, longest) - 1e-6 <= predict(ordered, model, workers).total_s
    assert predict(ordered, model, workers).total_s <= share + longest * (1 - 1 / workers) + 1e-6


@given(SECONDS, st.integers(1, 6), st.randoms())
@settings(max_examples=60, deadline=None)
def test_shares_divide_the_plan_by_groups_in_its_order(seconds, gpus, rng):
    cells, model = planned(seconds)
    cells += [cell(item.model, CUDAGRAPHS, device="cpu") for item in cells]
    rng.shuffle(cells)
    found = shares(cells, model, gpus)
    assert len(found) == gpus
    at = {item.cell_id: gpu for gpu, part in enumerate(found) for item in part}
    assert sum(map(len, found)) == len(at) == len(cells)
    for part in found:
        assert part == [item for item in cells if item in part]
    for item in cells:
        assert at[item.cell_id] == at[cell(item.model, DEFAULT, device="cpu").cell_id]


def test_groups_stay_where_they_were_unless_that_takes_longer():
    cells, model = planned([10, 10, 10, 10])
    kept = {group_of(cells[0]): 1, group_of(cells[1]): 0, group_of(cells[2]): 1}
    assert [names(part) for part in shares(cells, model, 2, kept)] == [[1, 3], [0, 2]]
    crowded = dict.fromkeys(map(group_of, cells), 1)
    assert [len(part) for part in shares(cells, model, 2, crowded)] == [2, 2]
    # GPUs that are gone and a model that is not planned are passed over.
    gone = {group_of(cells[0]): 7, group_of(cells[1]): -1, ("none", "none", "inference"): 0}
    assert shares(cells, model, 2, gone) == shares(cells, model, 2)
