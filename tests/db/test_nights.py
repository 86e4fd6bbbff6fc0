"""Nights: the runs that several GPUs make of one plan."""

import json
from dataclasses import replace

import pytest

from analysis.compare.compare_sides import compare_named
from collector.bundle import CONFIRM, check_bundle
from db.ingest import OtherRunError, ingest_bundle
from db.nights import list_nights, list_runs
from db.queries.cells import revision
from db.queries.series import repeats, series_runs
from db.queries.sides import order_note, previous_night, resolve_side
from db.store_errors import StoreError
from tests.factories import COMMIT_A, COMMIT_B, TESTBED, cell, header, night, passing, write_bundle


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("asked", "name", "expected"),
    [({"night": "n"}, "", "n"), ({"night": "n"}, "m", "m"), ("odd", "", "r1")],  # the first bundles of several GPUs
)
def test_the_night_is_read_from_where_a_bundle_says_it(store, tmp_path, asked, name, expected):
    path = write_bundle(tmp_path, header("r1", asked=asked, night=name), [passing(cell())])
    assert str(check_bundle(path).night or "r1") == expected
    ingest_bundle(store, path)
    assert [run.night for run in list_runs(store)] == [expected]


def test_two_nights_of_one_name_stay_two_and_keep_their_names(store, tmp_path):
    """Runs that pause for hours, or are of another commit, are another night."""
    stored = [("g0", 0, COMMIT_A), ("g1", 20, COMMIT_A), ("late", 40 * 60, COMMIT_A), ("late2", 40 * 60 + 9, COMMIT_A)]
    for name, minutes, sha in [*stored, ("other", 30, COMMIT_B)]:
        path = write_bundle(tmp_path, header(name, minutes=minutes, night="a", commit=sha), [passing(cell())])
        told = [ingest_bundle(store, path).renamed_night for _ in range(2)]
        assert told == ["" if name in ("g0", "g1") else resolve_side(store, name).nights[0], ""]
    assert resolve_side(store, "a").run_ids == ("g1", "g0")
    assert resolve_side(store, "a@20260802-1800").run_ids == ("late2", "late")
    assert resolve_side(store, "other").nights == ("a@20260801-023000",)


def test_what_confirms_a_night_is_of_it_and_moves_it_to_no_other_place(store, tmp_path):
    """Base is measured again a day later, after the night that is compared with it."""
    day, cells = 1440, [cell("m0"), cell("m1")]
    for number, commit in enumerate((COMMIT_A, COMMIT_B)):
        ingest_bundle(store, night(tmp_path, f"n{number}", minutes=day * number, cells=cells, commit=commit))
    for number, commit in ((1, COMMIT_B), (0, COMMIT_A)):
        again = {"minutes": day + 90 - number, "commit": commit, "night": f"n{number}", "trigger": CONFIRM}
        report = ingest_bundle(store, night(tmp_path, f"again{number}", cells=cells[:1], **again))
        assert report.renamed_night == ""
    assert [found.night for found in list_nights(store)] == ["n1", "n0"]
    assert previous_night(store, "n1") == "n0"
    for text in ("latest", "n1"):
        assert set(resolve_side(store, text).run_ids) == {"n1", "again1"}
    assert set(resolve_side(store, "latest~1").run_ids) == {"n0", "again0"}
    assert resolve_side(store, "again1").run_ids == ("again1",)
    assert [run.run_id for run in series_runs(store)] == ["n0", "again0", "n1", "again1"]
    both = [resolve_side(store, text) for text in ("n0", "n1")]
    in_time = repeats(store, both, ["compiled_ms"], look_back=1).runs
    assert in_time["night"].tolist() == ["n0", "n0", "n1", "n1"]


# Clocks that are wrong and names that are taken


DAY, YEAR = 24 * 60, 365 * 24 * 60


def test_a_run_that_is_older_than_the_newest_is_said_to_be(store, tmp_path):
    """The night that was stored last was measured by a clock that is a year back."""
    reports = [
        ingest_bundle(store, night(tmp_path, name, minutes=minutes, cells=[cell()]))
        for name, minutes in (("r1", 0), ("r2", DAY), ("r3", 2 * DAY - YEAR))
    ]
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


def test_another_run_of_a_name_is_refused_and_a_replaced_value_is_told(store, tmp_path):
    item = passing(cell())
    other = replace(item, metrics={**item.metrics, "compiled_ms": 60.0})
    item.metrics["compiled_ms"] = 7.1
    ingest_bundle(store, write_bundle(tmp_path / "a", header("r1"), [item]))
    for error, changes, said in (
        (StoreError, {"commit": "e" * 40}, "a run id of its own"),
        (OtherRunError, {"minutes": 1}, r"started 2026-08-01 02:00:00 UTC, this one .*db remove r1"),
    ):
        with pytest.raises(error, match=said):
            ingest_bundle(store, night(tmp_path / said[:4], "r1", cells=[cell()], **changes))
    assert revision(store) == 1
    name = "huggingface/bert inference bfloat16 cuda bs8 default"
    assert ingest_bundle(store, write_bundle(tmp_path / "b", header("r1"), [other])).replaced == (
        f"{name}: compiled_ms 7.1 stored, 60 in this bundle; the stored value stays",
    )
    later = ingest_bundle(store, write_bundle(tmp_path / "c", header("r1", attempt=2), [other]))
    assert (later.updated, later.replaced) == (1, (f"{name}: compiled_ms 7.1 stored, 60 in this bundle",))
    again = ingest_bundle(store, write_bundle(tmp_path / "d", header("r1", attempt=2), [other]))
    assert json.dumps([again.updated, again.replaced]) == "[0, []]"
