"""The code of a cell at commits: what a bisection reads of a census, and a search on a CPU."""

import json
from pathlib import Path

import pytest

from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError
from collector.vocabulary import Failure, Measurement, Stage, Status
from jobs.bisect.judges import CommitCode, bisected_cell
from jobs.builds.build_options import BuildError, SourceOptions
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusCell, CensusMemory
from jobs.pool.child import ChildError
from jobs.requested_options import RequestedOptions, RunNames
from tests.command_line import call, tell
from tests.factories import cell
from tests.jobs.census.torch_clone import clone_with_changes
from tests.jobs.repositories import run_git

CELL, SHA = cell(), "a" * 40
MODEL = "tests.collector.census.small_models:net"


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Returns the reading of a commit whose census has this outcome, or raises this error."""

    def read(outcome):
        def take_commit(source, cells, place, asked, answers, folder):
            assert (source.source, cells, folder) == (f"/clone@{SHA}", [CELL], tmp_path / SHA[:12])
            assert answers == {CELL.cell_id: {"q": (True, "night-1")}}
            if isinstance(outcome, Exception):
                raise outcome
            return {CELL.cell_id: CensusCell(outcome)}, folder / "run.jsonl.gz", "/overlay"

        monkeypatch.setattr("jobs.bisect.judges.take_commit", take_commit)
        memory = CensusMemory(tmp_path / "memory", answers={CELL.cell_id: {"q": (True, "night-1")}})
        asked = RunNames(branch="bisect"), RequestedOptions()
        place = CensusPlace("H100")
        source = CommitCode(Path("/clone"), SourceOptions(), CELL, place, asked, memory, tmp_path)
        return source.measure(SHA, 1)

    return read


def generated(status, message="", **facts):
    failure = Failure(Stage.COMPILE, "E", message) if message else None
    return Measurement(CELL, status, "", 1.0, failure=failure, details={CENSUS: facts}, code_id="c0de")


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (generated(Status.UNAVAILABLE, "not known without a GPU: tma"), "not known without a GPU: tma"),
        (generated(Status.FAIL_TO_COMPILE, "no lowering"), "fail_to_compile: no lowering"),
        (BuildError("needs a build"), "needs a build"),
        (CensusError("torch has no name `x`"), "aaaaaaaaaaaa: torch has no name `x`"),
    ],
)
def test_a_commit_without_known_code_is_one_line(measure, outcome, line):
    with pytest.raises(ChildError, match=line) as raised:
        measure(outcome)
    assert "\n" not in raised.value.message
    reading = measure(generated(Status.NOT_CHECKED, known=True))
    assert (reading.commit, reading.code, reading.bundle) == (SHA, "c0de", f"{SHA[:12]}/run.jsonl.gz")
    assert bisected_cell([CELL]) == CELL
    with pytest.raises(BuildError, match=r"options select 2 .*: narrow --model"):
        bisected_cell([CELL, cell("gpt2")])


@pytest.mark.slow
def test_a_search_names_the_commit_that_changed_code(tmp_path):
    clone, base = clone_with_changes(tmp_path / "clone")
    ask = ("bisect", "--metric", "code", "--git", clone, "--wheel-commit", base, "--device-name", "cpu")
    words = (*ask, "--model", MODEL, "--cache", "cache", "--good", base, "--config")
    done = call(*words, "triton", "--bad", "HEAD", "--json", folder=tmp_path)
    assert done.returncode == 0, tell(done)
    answer = json.loads(done.stdout)
    first, last = answer["first_bad"], answer["last_good"]
    assert (answer["answer"], run_git(clone, "log", "-1", "--format=%s", first)) == ("found", "Fuse less")
    again = call(*words, "triton", "--bad", "HEAD", folder=tmp_path)
    assert f"last good  {last}" in again.stdout and f"first bad  {first}" in again.stdout, tell(again)
    assert call("ingest", "bisect", "--db", "store.db", folder=tmp_path).returncode == 0
    compare = next(line for line in again.stdout.splitlines() if "inductor-watch compare" in line)
    compared = call(*compare.split()[1:], "--db", "store.db", folder=tmp_path)
    assert "0 of 1 cells have the same" in compared.stdout, tell(compared)

    for config, bad, code, said in (
        ("triton", "HEAD~2", 3, "good and bad generate the same code: "),
        ("cpp_wrapper", "HEAD", 2, "not known without a GPU"),
    ):
        refused = call(*words, config, "--bad", bad, "--out", f"of {config}", folder=tmp_path)
        assert refused.returncode == code, tell(refused)
        assert said in refused.stderr.splitlines()[-1]
