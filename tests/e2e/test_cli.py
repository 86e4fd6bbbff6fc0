"""The command line as people call it: real processes, real bundles, a real database; exit codes and one line of error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.command_line import ROOT, call, is_one_line, tell
from tests.factories import cell, header, matrix, night, passing, write_bundle
from tests.jobs.acting import played_host

#: Options of a run on a played host: torch is not imported.
PLAYED = ["--start", "spawn", "--device", "cpu", "--backend", "eager"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a database of two synthetic runs that have no cell in common."""
    made = tmp_path_factory.mktemp("small")
    one = night(made / "bundles", "one", cells=matrix(["bert"]))
    two = night(made / "bundles", "two", cells=matrix(["gpt2"]), minutes=60)
    assert call("ingest", one, two, folder=made).returncode == 0
    return made


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["comparr", "a", "b"], 2, "compare"),
        (["run", "--model", "NoSuchModel", *PLAYED], 2, "NoSuchModel"),
        (["ingest", "nowhere.jsonl.gz"], 2, "nowhere.jsonl.gz"),
        (["compare", "nosuchside", "latest"], 2, "nosuchside"),
        (["compare", "latest", "latest", "--config", "cudagraph"], 2, "cudagraphs"),
        (["run", "--model", "vision_maskrcnn", "--dtype", "float16", *PLAYED], 3, "nothing to measure"),
        (["compare", "one", "two", "--json"], 3, "no cell in common"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_its_exit_code(words, code, said, folder, tmp_path):
    variables = played_host(tmp_path / "played") if "--start" in words else {}
    is_one_line(call(*words, folder=folder, **variables), code, said)
    assert not (folder / "runs").exists()


def test_no_folder_no_database_and_a_file_that_is_none_are_exit_code_4(tmp_path):
    is_one_line(call("runs", folder=tmp_path), 4, "nightly", "ingest")
    assert list(tmp_path.iterdir()) == []
    bundle = night(tmp_path / "runs", "one", cells=matrix(["bert"]))
    is_one_line(call("ingest", bundle, "--db", tmp_path / "no" / "w.db", folder=tmp_path), 4, "does not exist")
    (tmp_path / "notes.db").write_text("dear diary, this is no database at all")
    is_one_line(call("runs", "--db", "notes.db", folder=tmp_path), 4, "not a database")
    assert (tmp_path / "notes.db").read_text().startswith("dear diary")


def test_a_cut_bundle_is_ingested_with_a_message(tmp_path):
    path = write_bundle(tmp_path, header("r1"), [passing(cell("bert")), passing(cell("gpt2"))], closed=False)
    path.write_bytes(path.read_bytes()[:-40])
    done = call("ingest", path, folder=tmp_path)
    assert done.returncode == 0, tell(done)
    assert "run r1: 1 new" in done.stdout
    assert "cut in the middle" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["zoo", "--json"], ["report", "latest", "latest"]])
def test_reading_verbs_import_no_torch(words, folder):
    heavy = "{'torch', 'triton', 'transformers'} & set(sys.modules)"
    prelude = f"import atexit; atexit.register(lambda: sys.stderr.write(str({heavy})))"
    done = call(*words, folder=folder, prelude=prelude)
    assert done.returncode == 0, tell(done)
    assert done.stderr.endswith("set()")


@pytest.mark.parametrize("words", [["runs"], ["compare", "latest", "latest"]])
def test_a_reader_that_has_gone_is_no_regression(words, folder):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "jobs.cli", *words, "--db", str(folder / "inductor-watch.db")]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
