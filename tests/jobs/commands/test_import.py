"""`inductor-watch import`: what it prints, what it leaves behind, and its exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from collector.bundle import read_bundle
from db.engine import open_store
from jobs.cli import app
from jobs.plan.cost import read_history
from tests.db import reads as queries
from tests.db.importing.foreign import COMMIT, GOOD, PERFORMANCE, put, table
from tests.factories import night

TOLD = ("--commit", COMMIT, "--branch", "main", "--date", "2026-08-01T02:00:00")


@pytest.fixture
def called(tmp_path):
    """Calls `import` on files below `tmp_path`, with a store and a folder of bundles there."""
    places = ("--out", str(tmp_path / "runs"), "--db", str(tmp_path / "s.db"))
    return lambda *words: CliRunner().invoke(app, ["import", *map(str, words), *places])


@pytest.fixture
def timed(tmp_path):
    return table(tmp_path, "performance", PERFORMANCE, GOOD)


def test_a_file_becomes_a_bundle_and_rows_in_the_database(called, timed, tmp_path):
    done = called(timed, *TOLD)
    assert done.exit_code == 0, done.output
    (bundle,) = (tmp_path / "runs").iterdir()
    run_id = bundle.name.removesuffix(".jsonl.gz")
    assert f"{timed}: 1 row, 13 values" in done.output
    assert f"run {run_id}  main@{COMMIT[:10]}: 1 measurement (1 pass)" in done.output
    with open_store(tmp_path / "s.db", write=False).connect() as conn:
        (row,) = queries.side_rows(conn, queries.resolve_side(conn, run_id)).to_dict("records")
    assert (row["model"], row["speedup"], row["config"]) == ("hf_Bert_large", 1.912345, "cudagraphs")


def test_a_bad_file_is_a_line_and_the_good_one_is_imported(called, timed, tmp_path):
    bad = put(tmp_path, "bad.csv", "nothing")
    done = called(bad, timed, tmp_path / "nowhere.csv", *TOLD)
    assert done.exit_code == 0
    assert "1 measurement (" in done.output
    assert [line for line in done.output.splitlines() if "bad.csv" in line or "nowhere" in line] == [
        "bad.csv: its first line names no column `name`: not a table of benchmarks/dynamo",
        f"cannot read {tmp_path}/nowhere.csv: No such file or directory",
    ]


@pytest.mark.parametrize("content", ["", "nothing", "{", "[]"])
def test_nothing_to_read_is_exit_code_2_and_leaves_nothing(called, tmp_path, content):
    done = called(put(tmp_path, "x.csv", content), *TOLD)
    assert done.exit_code == 2
    assert "nothing could be imported" in done.output
    assert not (tmp_path / "s.db").exists() and not (tmp_path / "runs").exists()


def test_json_has_files_runs_and_problems(called, timed, tmp_path):
    done = called(timed, put(tmp_path, "bad.csv", "nothing"), *TOLD, "--json")
    found = json.loads(done.output)
    assert [file["rows"] for file in found["files"]] == [0, 1]
    assert found["files"][0]["problem"].startswith("bad.csv: ")
    assert found["runs"][0]["stored"]["new"] == 1
    assert found["problems"] == []


def test_imported_runs_teach_the_cost_model_nothing(called, timed, tmp_path):
    assert called(timed, *TOLD).exit_code == 0
    own = night(tmp_path / "runs", "own")
    assert [contents.header.run_id for contents in read_history(tmp_path / "runs")] == ["own"]
    assert read_bundle(Path(own)).header.trigger != "import"


def test_a_run_from_the_future_is_a_bundle_and_a_line_but_not_stored(called, timed, tmp_path):
    done = called(timed, *TOLD[:-1], "2150-01-01T00:00:00")
    assert "starts in the future, 2150-01-01" in done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert queries.list_runs(open_store(tmp_path / "s.db", write=False)) == []
