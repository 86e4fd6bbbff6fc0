"""The night that another one is compared with, on both databases."""

from __future__ import annotations

import pytest

from db.ingest import ingest_bundle
from db.queries.sides import previous_night, resolve_side
from db.store_errors import NoBaseError
from tests.factories import TESTBED, cell, header, night, write_bundle

A, B, C = (cell(model) for model in "abc")
NIGHTLY = {"trigger": "nightly"}


@pytest.fixture
def measured(store, tmp_path):
    """Store a night of some cells, an hour after the one before."""
    hours = iter(range(99))

    def store_night(run_id, *cells, **changes):
        made = night(tmp_path, run_id, minutes=60 * next(hours), cells=cells or (A, B, C), **{**NIGHTLY, **changes})
        ingest_bundle(store, made)

    return store_night


def test_an_ad_hoc_run_is_no_base_of_a_night(store, measured):
    measured("first")
    measured("tried", A, trigger="adhoc")
    measured("all of it", trigger="adhoc")
    measured("second")
    assert previous_night(store, "second") == "first"
    assert resolve_side(store, "latest~1").run_ids == ("first",)


def test_an_ad_hoc_run_is_held_against_any_run_with_its_cells(store, measured):
    measured("night")
    measured("other", B, trigger="adhoc")
    measured("one", A, trigger="adhoc")
    assert previous_night(store, "one") == "night"
    measured("again", A, trigger="again")
    assert previous_night(store, "again") == "one"


def test_a_base_planned_half_of_the_cells_or_more(store, measured):
    measured("whole")
    measured("half", A, B)
    measured("third", A)
    measured("newest")
    assert previous_night(store, "newest") == "half"
    assert resolve_side(store, "latest~2").run_ids == ("whole",)
    with pytest.raises(NoBaseError, match="of the nights before newest 2 measured at least half") as refused:
        resolve_side(store, "latest~3")
    assert refused.value.exit_code == 3


def test_what_a_base_planned_on_another_testbed_does_not_count(store, tmp_path, measured):
    measured("here")
    measured("gpu0", A, night="spread")
    measured("gpu1", B, C, night="spread", testbed={**TESTBED, "gpu_index": 1})
    measured("newest")
    assert previous_night(store, "newest") == "here"


def test_a_night_of_the_same_branch_goes_first(store, measured):
    measured("release", branch="release/2.13")
    measured("main", branch="main")
    measured("newest", branch="release/2.13")
    assert previous_night(store, "newest") == "release"
    measured("other", branch="release/2.14")
    assert previous_night(store, "other") == "newest"


def test_a_night_that_measured_nothing_is_no_base(store, tmp_path, measured):
    measured("first")
    planned = write_bundle(tmp_path, header("empty", minutes=90, **NIGHTLY), [], planned=[A, B, C])
    ingest_bundle(store, planned)
    measured("unused")
    measured("second")
    assert previous_night(store, "unused") == "first"
    assert previous_night(store, "first") == previous_night(store, "nowhere") == ""
