"""Which cells of a night are measured again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from analysis.compare.comparison import MOST_CONFIRMATIONS, due_cells, is_due
from tests.analysis.compare.cells import compared


@pytest.mark.parametrize(
    ("outcome", "more_runs", "expected"),
    [
        *((outcome, None, True) for outcome in ("regressed", "improved", "broke", "flaky")),
        ("inconclusive", 1.0, True),
        *(("inconclusive", runs, False) for runs in (2.0, float("inf"), None)),  # None: nothing is known of the noise
        ("unchanged", 1.0, False),
        ("still_failing", None, False),
    ],
)
def test_what_changed_or_one_more_run_decides_is_due(outcome, more_runs, expected):
    assert is_due(outcome, more_runs) is expected


@pytest.mark.parametrize(
    ("moved", "model_changed", "confirmed", "expected"),
    [
        *(
            (False, False, times, times < MOST_CONFIRMATIONS)
            for times in (0, MOST_CONFIRMATIONS - 1, MOST_CONFIRMATIONS)
        ),
        (True, False, 0, False),
        (False, True, 0, False),
    ],
)
def test_a_cell_is_due_so_often_and_where_a_run_can_settle_it(moved, model_changed, confirmed, expected):
    one = replace(compared("broke", statuses=("pass", "fail_to_run"), moved=moved), model_changed=model_changed)
    assert due_cells(SimpleNamespace(cells=(one,)), {one.cell.cell_id: confirmed}) == [one] * expected
