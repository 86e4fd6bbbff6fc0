"""`inductor-watch ingest`: what one bad file among good ones does."""

import json

import pytest
from click.testing import CliRunner

from db.engine import open_store
from db.nights import list_runs
from jobs.bisect.search import LOG_NAME, BisectionLog
from jobs.cli import app
from tests.factories import COMMIT_B, START, cell, night


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two good bundles with a bad file before, between and after them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INDUCTOR_WATCH_DB", raising=False)
    for name in ("r1", "r3"):
        night(tmp_path / "runs", name, cells=[cell()])
    (tmp_path / "runs" / "r0.jsonl").touch()
    (tmp_path / "runs" / "r2.jsonl").write_text('{"somebody": "else"}\n')
    (tmp_path / "runs" / "r4.jsonl.gz").write_bytes(b"\x1f\x8b\x00")
    return tmp_path


def ingest(*words):
    return CliRunner().invoke(app, ["ingest", *map(str, words)])


def stored():
    return sorted(run.run_id for run in list_runs(open_store("inductor-watch.db", write=False)))


def test_bad_files_cost_a_line_each_and_the_others_are_stored(folder):
    done = ingest("runs")
    assert (done.exit_code, stored()) == (1, ["r1", "r3"])
    lines = done.stderr.splitlines()
    assert [name in line for name, line in zip(("r0", "r2", "r4"), lines, strict=False)] == [True] * 3
    assert lines[3:] == ["3 of 5 bundles could not be stored: repair or remove them; the others are in the database"]
    found = [json.loads(line) for line in ingest("runs", "--json").stdout.splitlines()]
    assert [item.get("run_id") for item in found] == [None, "r1", None, "r3", None]


def test_the_log_of_a_bisection_among_its_bundles_is_no_bundle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    night(tmp_path / "bisect" / "abc" / "1", "r1", cells=[cell()])
    BisectionLog(tmp_path / "bisect" / LOG_NAME, {})
    done = ingest("bisect")
    assert (done.exit_code, stored()) == (0, ["r1"]), done.output


def test_a_run_that_contradicts_the_stored_one_is_a_bad_file_like_another(folder):
    other = night(folder / "other", "r1", cells=[cell()], commit=COMMIT_B)
    late = night(folder / "other", "r9", cells=[cell()])
    done = ingest("runs/r1.jsonl.gz", other, late)
    assert (done.exit_code, stored()) == (1, ["r1", "r9"])
    assert "already stored" in done.stderr.splitlines()[0]


def test_where_no_file_is_a_bundle_no_database_is_made(folder):
    done = ingest("runs/r0.jsonl", "runs/r2.jsonl")
    assert done.exit_code == 2
    assert not list(folder.glob("*.db"))
    assert len(done.stderr.splitlines()) == 3


def test_a_run_from_the_future_is_refused_and_a_clock_may_be_minutes_ahead(folder, monkeypatch):
    monkeypatch.setattr("time.time", lambda: START.timestamp())
    done = ingest("runs/r1.jsonl.gz", night(folder / "far", "far", minutes=60, cells=[cell()]))
    assert (done.exit_code, stored()) == (1, ["r1"])
    assert "starts in the future, 2026-08-01 03:00 UTC" in done.stderr.splitlines()[0]
    assert ingest(night(folder / "near", "near", minutes=5, cells=[cell()])).exit_code == 0
    assert stored() == ["near", "r1"]
