"""Regressions: what is written stays as it was found, and only what makes sense can follow."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from db import regression_records as records
from db.ingest import ingest_bundle
from db.queries.cells import revision
from db.regression_records import Finding, change_state, find_regression, list_regressions, open_regression
from db.schema import Regression
from db.store_errors import RecordError
from tests.factories import COMMIT_A, COMMIT_B, TESTBED, cell, night

AT = datetime(2026, 8, 3, 9, 0, tzinfo=UTC)
WHO = "ann"
CELL = cell().cell_id
SLOWER = Finding(CELL, "base", "onset", "slower", "compiled_ms", 4.0, 4.8)


@pytest.fixture
def nights(store, tmp_path):
    for number, (run_id, sha) in enumerate({"base": COMMIT_A, "onset": COMMIT_B, "later": COMMIT_B}.items()):
        ingest_bundle(store, night(tmp_path, run_id, minutes=1440 * number, commit=sha))
    ingest_bundle(store, night(tmp_path, "aside", minutes=30, testbed=TESTBED | {"cores": 8}))
    return store


def says(function, *words, **more):
    with pytest.raises(RecordError) as caught:
        function(*words, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_found_is_pinned_with_its_base_and_history(nights):
    opened = open_regression(nights, SLOWER, at=AT, author=WHO, text="two nights", owner="bob", link="https://x/1")
    assert (opened.state, opened.is_open, opened.owner, opened.link) == ("new", True, "bob", "https://x/1")
    assert (opened.base_run, opened.onset_run, opened.base_value, opened.new_value) == ("base", "onset", 4.0, 4.8)
    assert (opened.base_commit, opened.onset_commit) == (COMMIT_A, COMMIT_B)
    assert (opened.repo, opened.branch, opened.cell_id, opened.opened_at) == ("pytorch/pytorch", "main", CELL, AT)
    (event,) = opened.events
    assert (event.at, event.author, event.text) == (AT, WHO, "two nights")
    # To find it again is the same record.
    change_state(nights, opened.regression_id, "acknowledged", at=AT, author=WHO)
    before = revision(nights)
    again = open_regression(nights, SLOWER, at=AT + timedelta(days=1), author="verdicts")
    assert (again.regression_id, again.state, len(again.events)) == (opened.regression_id, "acknowledged", 2)
    assert (revision(nights), len(list_regressions(nights))) == (before, 1)


def test_a_record_tells_its_history_in_the_order_of_writing(nights):
    name = open_regression(nights, SLOWER, at=AT, author=WHO).regression_id
    states = ["confirmed", "acknowledged", "fixed", "returned", "expected"]
    for number, state in enumerate(states):
        change_state(nights, name, state, at=AT - timedelta(hours=number), author="bob", text=state.upper())
    found = records.regression(nights, name)
    assert [event.to_state for event in found.events] == ["new", *states]
    assert [event.from_state for event in found.events] == [None, "new", *states[:-1]]
    assert "one of new, confirmed" in says(change_state, nights, name, "gone\n", at=AT, author=WHO)
    assert (found.state, found.is_open, found.base_value, found.base_run) == ("expected", False, 4.0, "base")


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("finding", "word"),
    [
        (Finding("nonsense", "base", "onset", "slower"), "no cell 'nonsense'"),
        (Finding(CELL, "bsae", "onset", "slower"), "nearest: base"),
        (Finding(CELL, "base", "onset", "slower", "compiled"), "compiled_ms"),
        (Finding(CELL, "base", "onset", ""), "needs a kind"),
        (Finding(CELL, "aside", "onset", "slower"), "not of one branch and testbed"),
    ],
)
def test_what_does_not_belong_together_is_refused_and_nothing_is_written(nights, finding, word):
    before = revision(nights)
    assert word in says(open_regression, nights, finding, at=AT, author=WHO)
    assert (list_regressions(nights), revision(nights)) == ([], before)


def test_a_record_is_found_by_a_beginning_of_its_name_that_is_its_own(nights):
    first = open_regression(nights, SLOWER, at=AT, author=WHO)
    second = open_regression(nights, replace(SLOWER, kind="broke", metric=""), at=AT, author=WHO)
    assert find_regression(nights, first.regression_id[:6]) == first
    assert "write more of it" in says(find_regression, nights, first.regression_id[:3])
    with nights.begin() as conn:
        for number, record in enumerate((first, second)):
            named = update(Regression).where(Regression.regression_id == record.regression_id)
            conn.execute(named.values(regression_id=f"abcd{number}"))
    assert "could be abcd0, abcd1" in says(find_regression, nights, "abcd")
    assert find_regression(nights, "abcd1").kind == "broke"


def test_a_link_that_is_no_address_is_refused_wherever_it_comes_from(nights):
    told = {"at": AT, "author": WHO, "link": "javascript:alert(1)"}
    assert "https://" in says(open_regression, nights, SLOWER, **told)
    name = open_regression(nights, SLOWER, at=AT, author=WHO).regression_id
    assert "https://" in says(change_state, nights, name, "acknowledged", **told)
    assert "https://" in says(records.note_regression, nights, name, **told | {"link": "https://x/1 2"})
    found = records.regression(nights, name)
    assert (found.link, found.state, len(found.events)) == ("", "new", 1)
