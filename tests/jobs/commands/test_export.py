"""`inductor-watch export`: to a file, to standard output, and its exit codes."""

import json

import pytest
from click.testing import CliRunner

from db.ingest import ingest_bundle
from jobs.cli import app
from tests.factories import matrix, new_store, night


@pytest.fixture
def called(tmp_path):
    """Calls `export` on a store of one run of three cells."""
    engine = new_store(tmp_path / "s.db")
    ingest_bundle(engine, night(tmp_path, "r1", cells=matrix(["bert"])))
    engine.dispose()
    return lambda *words: CliRunner().invoke(app, ["export", *map(str, words), "--db", str(tmp_path / "s.db")])


@pytest.mark.parametrize(("form", "count"), [("v3", None), ("parquet", 3)])
def test_a_file_is_written_and_told(called, tmp_path, form, count):
    done = called("latest", "--format", form, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out").stat().st_size > 500
    assert done.output.startswith(f"{tmp_path}/out: {count or ''}")
    assert done.output.endswith("rows of r1\n")


def test_the_newest_night_as_v3_on_standard_output_where_nothing_is_said(called):
    first = json.loads(called().output.splitlines()[0])
    assert (first["schema_version"], first["metric"]["name"]) == ("v3", "accuracy")
    assert called("latest", "--format", "csv", "-o", "-").output == called("--format", "csv").output
    assert called("--format", "csv").output.count("\n") == 4


def test_bundles_go_into_a_folder(called, tmp_path):
    done = called("r1", "--format", "bundle", "--out", tmp_path / "out", "--json")
    assert json.loads(done.output)[0]["run_ids"] == ["r1"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["r1.jsonl.gz"]


@pytest.mark.parametrize("form", ["bundle", "parquet"])
def test_what_is_no_text_wants_a_place(called, form):
    done = called("r1", "--format", form)
    assert (done.exit_code, "-o" in done.output) == (2, True)
