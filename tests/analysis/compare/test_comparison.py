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
        ("regressed", None, True),
        ("improved", None, True),
        ("broke", None, True),
        ("flaky", None, True),
        ("inconclusive", 1.0, True),
        ("inconclusive", 2.0, False),
        ("inconclusive", float("inf"), False),
        ("inconclusive", None, False),  # nothing is known of the noise
        ("unchanged", 1.0, False),
        ("still_failing", None, False),
    ],
)
def test_what_changed_or_one_more_run_decides_is_due(outcome, more_runs, expected):
    assert is_due(outcome, more_runs) is expected


@pytest.mark.parametrize(
    ("changes", "confirmed", "expected"),
    [
        ({}, 0, True),
        ({}, MOST_CONFIRMATIONS - 1, True),
        ({}, MOST_CONFIRMATIONS, False),
        ({"moved": True}, 0, False),
        ({"model_changed": True}, 0, False),
    ],
)
def test_a_cell_is_due_so_often_and_where_a_run_can_settle_it(changes, confirmed, expected):
    one = replace(
        compared("broke", statuses=("pass", "fail_to_run"), moved=changes.get("moved", False)),
        model_changed=changes.get("model_changed", False),
    )
    found = due_cells(SimpleNamespace(cells=(one,)), {one.cell.cell_id: confirmed})
    assert found == ([one] if expected else [])
