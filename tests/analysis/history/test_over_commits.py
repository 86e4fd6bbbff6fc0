"""Which commit changed which code, from censuses that were taken in any order."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from analysis.history.over_commits import code_changes
from collector.bundle import CENSUS
from db.nights import RunInfo
from db.queries.details import CensusCodes
from tests.analysis.compare.cells import name

BEGAN = datetime(2026, 7, 1, tzinfo=UTC)


def census(commit, taken, **codes):
    run = RunInfo(0, f"{commit}-{taken}", "", "main", commit, "r", "t", {CENSUS: "H100"}, "", BEGAN)
    dated = replace(
        run, started_at=BEGAN + timedelta(hours=taken), commit_date=BEGAN + timedelta(days="abcd".index(commit))
    )
    return CensusCodes(dated, {name(model): code for model, code in codes.items()})


def changed(*censuses):
    return [
        (one.run.commit, {cell.model: code.changed_from for cell, code in one.cells.items() if code.changed_from})
        for one in code_changes(censuses)
    ]


def test_a_change_is_of_the_commit_after_the_last_one_with_the_cell():
    found = changed(
        census("d", 1, one="x", two="z"), census("a", 2, one="x", two="y"), census("b", 3, one="x"), census("c", 4)
    )
    assert found == [("d", {"two": "a-2"}), ("c", {}), ("b", {}), ("a", {})]
    # The newest census of a cell at a commit counts.
    found = changed(census("a", 1, one="x", two="y"), census("a", 3, one="w"), census("b", 2, one="x", two="y"))
    assert found == [("b", {"one": "a-3"}), ("a", {})]
