"""The command line as people call it: real processes, real bundles, a real database; exit codes and one line of error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.command_line import ROOT, call, is_one_line, tell
from tests.factories import cell, header, matrix, night, passing, write_bundle
from tests.jobs.acting import played_host

BUNDLES = sorted((ROOT / "data" / "releases").glob("*.xz"))
#: Options of a run on a played host: torch is not imported.
PLAYED = ["--start", "spawn", "--device", "cpu"]
EAGER = [*PLAYED, "--backend", "eager"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with a database that holds the bundles under data/; what the first ingest printed comes along."""
    folder = tmp_path_factory.mktemp("filled")
    return folder, call("ingest", *BUNDLES, folder=folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a database of two synthetic runs that have no cell in common."""
    folder = tmp_path_factory.mktemp("small")
    one = night(folder / "runs", "one", cells=matrix(["bert"]))
    two = night(folder / "runs", "two", cells=matrix(["gpt2"]), minutes=60)
    assert call("ingest", one, two, folder=folder).returncode == 0
    return folder


def test_the_bundles_of_the_checkout_are_ingested_with_one_command(filled):
    done = filled[1]
    assert done.returncode == 0, tell(done)
    lines = done.stdout.splitlines()
    assert len(lines) == len(BUNDLES)
    assert all(" 0 updated, 0 unchanged" in line and " 0 new" not in line for line in lines)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["comparr", "a", "b"], "compare"),
        (["run", "--model", "NoSuchModel", *EAGER], "NoSuchModel"),
        (["ingest", "nowhere.jsonl.gz"], "nowhere.jsonl.gz"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, said, tmp_path):
    variables = played_host(tmp_path / "played") if "--start" in words else {}
    is_one_line(call(*words, folder=tmp_path, **variables), 2, said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "nosuchside", "latest"], "nosuchside"),
        (["compare", "latest", "latest", "--config", "cudagraph"], "cudagraphs"),
    ],
)
def test_a_side_or_filter_that_is_not_there_is_exit_code_2(words, said, small):
    is_one_line(call(*words, folder=small), 2, said)


def test_no_overlap_is_exit_code_3(small):
    done = call("compare", "one", "two", "--json", folder=small)
    is_one_line(done, 3, "no cell in common")
    assert json.loads(done.stdout)["transitions"]["both_pass"] == 0


def test_nothing_to_measure_is_exit_code_3(tmp_path):
    words = ("run", "--model", "vision_maskrcnn", "--dtype", "float16", *EAGER)
    done = call(*words, folder=tmp_path, **played_host(tmp_path / "played"))
    is_one_line(done, 3, "nothing to measure")
    assert list(tmp_path.iterdir()) == []


def test_no_folder_and_a_file_that_is_no_database_are_exit_code_4(tmp_path):
    bundle = night(tmp_path / "runs", "one", cells=matrix(["bert"]))
    is_one_line(call("ingest", bundle, "--db", tmp_path / "no" / "w.db", folder=tmp_path), 4, "does not exist")
    (tmp_path / "notes.db").write_text("dear diary, this is no database at all")
    is_one_line(call("runs", "--db", "notes.db", folder=tmp_path), 4, "not a database")
    assert (tmp_path / "notes.db").read_text().startswith("dear diary")


def test_no_database_yet_says_how_to_make_one(tmp_path):
    is_one_line(call("runs", folder=tmp_path), 4, "nightly", "ingest")
    assert list(tmp_path.iterdir()) == []


def test_a_cut_bundle_is_ingested_with_a_message(tmp_path):
    path = write_bundle(tmp_path, header("r1"), [passing(cell("bert")), passing(cell("gpt2"))], closed=False)
    path.write_bytes(path.read_bytes()[:-40])
    done = call("ingest", path, folder=tmp_path)
    assert done.returncode == 0, tell(done)
    assert "run r1: 1 new" in done.stdout
    assert "cut in the middle" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["zoo", "--json"], ["report", "latest", "latest"]])
def test_reading_verbs_import_no_torch(words, small):
    heavy = "{'torch', 'triton', 'transformers'} & set(sys.modules)"
    prelude = f"import atexit; atexit.register(lambda: sys.stderr.write(str({heavy})))"
    done = call(*words, folder=small, prelude=prelude)
    assert done.returncode == 0, tell(done)
    assert done.stderr.endswith("set()")


def test_a_reader_that_closes_the_pipe_early_is_no_error(filled):
    line = f"{sys.executable} -m jobs.cli runs --db {filled[0] / 'inductor-watch.db'} | head -c 1"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.slow
def test_one_real_cell_from_the_command_line_to_the_comparison(tmp_path):
    words = ["run", "--model", "ViTTinyForImageClassification", "--config", "triton", "--device", "cpu"]
    done = call(*words, "--samples", "5", "--fail", folder=tmp_path)
    assert done.returncode == 0, tell(done)
    assert "[1/1]" in done.stdout
    assert "pass" in done.stdout
    (bundle,) = (tmp_path / "runs").glob("*.jsonl*")
    assert bundle.name.endswith(".jsonl.gz")
    found = json.loads(call("compare", "latest", "latest", "--json", folder=tmp_path).stdout)
    assert found["transitions"]["both_pass"] == 1
    (suite,) = found["suites"]
    assert suite["figures"]["speedup"]["ratio"] == 1.0
