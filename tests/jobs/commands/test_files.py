"""`ingest`, `export` and `import`: what a bad file among good ones does, what is written, and how they end."""

from __future__ import annotations

import gzip
import json

import pytest
from click.testing import CliRunner

from collector.bundle import read_bundle
from collector.usage_errors import BundleError
from db.engine import open_store
from db.nights import list_runs
from jobs.bisect.search import LOG_NAME, BisectionLog
from jobs.cli import app
from jobs.plan.cost import read_history
from tests.dashboard import stores
from tests.db import reads as queries
from tests.db.importing.foreign import COMMIT, GOOD, PERFORMANCE, put, table
from tests.factories import COMMIT_B, START, cell, matrix, night


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
    # The log of a bisection among its bundles is no bad file.
    night(folder / "bisect" / "abc" / "1", "r5", cells=[cell()])
    BisectionLog(folder / "bisect" / LOG_NAME, {})
    assert (ingest("bisect").exit_code, stored()) == (0, ["r1", "r3", "r5"])


def test_a_run_that_contradicts_the_stored_one_is_a_bad_file_like_another(folder):
    done = ingest("runs/r0.jsonl", "runs/r2.jsonl")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 3)
    assert not list(folder.glob("*.db")), "no file is a bundle"
    other, late = (night(folder / "other", name, cells=[cell()], commit=COMMIT_B) for name in ("r1", "r9"))
    done = ingest("runs/r1.jsonl.gz", other, late)
    assert (done.exit_code, stored()) == (1, ["r1", "r9"])
    assert "already stored" in done.stderr.splitlines()[0]


def test_where_nothing_could_be_stored_is_exit_code_2(folder):
    header, *_ = gzip.decompress(night(folder, "refused", cells=[cell()]).read_bytes()).decode().splitlines()
    refused = folder / "refused.jsonl"
    refused.write_text(f'{header}\n{{"record": "measurement"}}\n')
    done = ingest(refused)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"{refused}: no measurement in it could be stored")
    (folder / "empty").mkdir()
    error = ingest("empty").exception
    assert isinstance(error, BundleError) and (error.exit_code, str(error)[:20]) == (2, "no bundles in empty:")


def test_a_run_from_the_future_is_refused_and_a_clock_may_be_minutes_ahead(folder, monkeypatch):
    monkeypatch.setattr("time.time", lambda: START.timestamp())
    done = ingest("runs/r1.jsonl.gz", night(folder / "far", "far", minutes=60, cells=[cell()]))
    assert (done.exit_code, stored()) == (1, ["r1"])
    assert "starts in the future, 2026-08-01 03:00 UTC" in done.stderr.splitlines()[0]
    assert ingest(night(folder / "near", "near", minutes=5, cells=[cell()])).exit_code == 0
    assert stored() == ["near", "r1"]


@pytest.fixture
def exported(tmp_path):
    """Calls `export` on a store of one run of three cells."""
    stores.store(tmp_path / "s.db", [night(tmp_path, "r1", cells=matrix(["bert"]))])
    return lambda *words: CliRunner().invoke(app, ["export", *map(str, words), "--db", str(tmp_path / "s.db")])


def test_an_export_is_a_file_a_folder_of_bundles_or_text(exported, tmp_path):
    done = exported("latest", "--format", "parquet", "-o", tmp_path / "table")
    assert done.output == f"{tmp_path}/table: 3 rows of r1\n"
    assert (tmp_path / "table").stat().st_size > 500
    done = exported("r1", "--format", "bundle", "--out", tmp_path / "out", "--json")
    assert json.loads(done.output)[0]["run_ids"] == ["r1"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["r1.jsonl.gz"]
    # Text goes to standard output; what is no text wants a place.
    first = json.loads(exported().output.splitlines()[0])
    assert (first["schema_version"], first["metric"]["name"]) == ("v3", "accuracy")
    assert exported("--format", "csv").output.count("\n") == 4
    for form in ("bundle", "parquet"):
        done = exported("r1", "--format", form)
        assert (done.exit_code, "-o" in done.output) == (2, True)


TOLD = ("--commit", COMMIT, "--branch", "main", "--date", "2026-08-01T02:00:00")


@pytest.fixture
def imported(tmp_path):
    """Calls `import` on files below `tmp_path`, with a store and a folder of bundles there."""
    places = ("--out", tmp_path / "runs", "--db", tmp_path / "s.db")
    return lambda *files: CliRunner().invoke(app, ["import", *map(str, (*files, *TOLD, *places))])


def test_a_good_file_becomes_a_bundle_and_rows_and_a_bad_one_is_a_line(imported, tmp_path):
    timed = table(tmp_path, "performance", PERFORMANCE, GOOD)
    done = imported(put(tmp_path, "bad.csv", "nothing"), timed, tmp_path / "nowhere.csv")
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if "bad.csv" in line or "nowhere" in line] == [
        "bad.csv: its first line names no column `name`: not a table of benchmarks/dynamo",
        f"cannot read {tmp_path}/nowhere.csv: No such file or directory",
    ]
    (bundle,) = (tmp_path / "runs").iterdir()
    run_id = bundle.name.removesuffix(".jsonl.gz")
    assert f"{timed}: 1 row, 13 values" in done.output
    with open_store(tmp_path / "s.db", write=False).connect() as conn:
        (row,) = queries.side_rows(conn, queries.resolve_side(conn, run_id)).to_dict("records")
    assert (row["model"], row["speedup"], row["config"]) == ("hf_Bert_large", 1.912345, "cudagraphs")
    # It teaches the cost model nothing.
    own = night(tmp_path / "runs", "own")
    assert [contents.header.run_id for contents in read_history(tmp_path / "runs")] == ["own"]
    assert read_bundle(own).header.trigger != "import"


def test_the_counts_of_an_import_add_up_where_a_model_appears_again(imported, tmp_path):
    done = imported(table(tmp_path, "performance", PERFORMANCE, GOOD, GOOD))
    assert ": 2 measurements (1 pass; 1 of cells that were measured again); bundle" in done.output


@pytest.mark.parametrize("content", ["", "nothing", "{"])
def test_nothing_to_read_is_exit_code_2_and_leaves_nothing(imported, tmp_path, content):
    done = imported(put(tmp_path, "x.csv", content))
    assert done.exit_code == 2
    assert "nothing could be imported" in done.output
    assert not (tmp_path / "s.db").exists() and not (tmp_path / "runs").exists()
