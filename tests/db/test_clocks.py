"""Clocks that are wrong and names that are taken: said when a bundle is stored, and when `latest` is judged."""

import json
from dataclasses import replace

import pytest

from analysis.compare.compare_sides import compare_named
from db.ingest import OtherRunError, ingest_bundle
from db.queries.cells import revision
from db.queries.sides import order_note, resolve_side
from db.store_errors import StoreError
from tests.factories import TESTBED, cell, header, night, passing, write_bundle

YEAR = 365 * 24 * 60
DAY = 24 * 60


@pytest.fixture
def nights(store, tmp_path):
    """Three nights, of which the one stored last was measured by a clock that is a year back."""
    reports = [
        ingest_bundle(store, night(tmp_path, name, minutes=minutes, cells=[cell()]))
        for name, minutes in (("r1", 0), ("r2", DAY), ("r3", 2 * DAY - YEAR))
    ]
    return store, reports


def test_a_run_that_is_older_than_the_newest_is_said_to_be(nights):
    store, reports = nights
    assert [report.newer for report in reports] == ["", "", "r2"]
    assert "2025-08-03 02:00 UTC, before run r2, which is stored already" in reports[2].out_of_order
    comparison = compare_named(store, "latest~1", "latest")
    assert (comparison.base.nights, comparison.new.nights) == (("r1",), ("r2",))
    assert comparison.notes[0].startswith("night r3 was stored last, but by the clock of its host it began on 2025-")
    named = compare_named(store, "r1", "r2")
    assert not any("stored last" in note for note in named.notes)


@pytest.mark.parametrize(
    ("minutes", "trigger", "is_said"), [(-60, "test", False), (-2 * DAY, "test", True), (-2 * DAY, "backfill", False)]
)
def test_another_host_and_a_backfill_may_end_later_than_they_began(store, tmp_path, minutes, trigger, is_said):
    ingest_bundle(store, night(tmp_path, "r1", minutes=0, cells=[cell()]))
    other = {"testbed": {**TESTBED, "node": "other"}, "trigger": trigger}
    ingest_bundle(store, night(tmp_path, "r2", minutes=minutes, cells=[cell()], **other))
    assert bool(order_note(store, resolve_side(store, "latest"))) is is_said


def test_another_run_of_the_same_name_is_refused(store, tmp_path):
    ingest_bundle(store, night(tmp_path / "a", "r1", cells=[cell()]))
    with pytest.raises(StoreError, match="a run id of its own"):
        ingest_bundle(store, night(tmp_path / "c", "r1", commit="e" * 40))
    with pytest.raises(OtherRunError, match=r"started 2026-08-01 02:00:00 UTC, this one .*db remove r1"):
        ingest_bundle(store, night(tmp_path / "b", "r1", minutes=1, cells=[cell()]))
    assert revision(store) == 1


def test_a_replaced_value_is_told_with_the_one_that_replaces_it(store, tmp_path):
    item = passing(cell())
    other = replace(item, metrics={**item.metrics, "compiled_ms": 60.0})
    item.metrics["compiled_ms"] = 7.1
    ingest_bundle(store, write_bundle(tmp_path / "a", header("r1"), [item]))
    name = "huggingface/bert inference bfloat16 cuda bs8 default"
    assert ingest_bundle(store, write_bundle(tmp_path / "b", header("r1"), [other])).replaced == (
        f"{name}: compiled_ms 7.1 stored, 60 in this bundle; the stored value stays",
    )
    later = ingest_bundle(store, write_bundle(tmp_path / "c", header("r1", attempt=2), [other]))
    assert (later.updated, later.replaced) == (1, (f"{name}: compiled_ms 7.1 stored, 60 in this bundle",))
    again = ingest_bundle(store, write_bundle(tmp_path / "d", header("r1", attempt=2), [other]))
    assert json.dumps([again.updated, again.replaced]) == "[0, []]"
