"""The verb census on a CPU: cells as lines or JSON, a bundle that is no night, a comparison, a range of commits."""

import json
from dataclasses import replace

import pytest

from collector.bundle import CENSUS, read_bundle
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.census.census_runs import CensusMemory
from jobs.plan.planning import Plan
from tests.command_line import call, is_one_line, tell
from tests.factories import cell, header, night, passing, write_bundle
from tests.jobs.census.torch_clone import clone_with_changes

MODEL = "tests.collector.census.small_models:net"
ON_CPU = ("census", "--device-name", "cpu", "--model", MODEL, "--cache", "cache")


def test_each_cell_is_an_object_and_the_bundle_a_census_but_no_night(tmp_path):
    bundle = night(tmp_path / "nights", "night-1")
    assert call("ingest", bundle, "--db", "store.db", folder=tmp_path).returncode == 0
    words = ("--config", "triton", "--config", "default", "--config", "cpp_wrapper", "--db", "store.db", "--json")
    found = call(*ON_CPU, *words, folder=tmp_path)
    assert found.returncode == 0, tell(found)
    cells = {item["config"]: item for item in map(json.loads, found.stdout.splitlines())}
    known = {config: item["known"] for config, item in cells.items()}
    assert known == {"triton": True, "default": True, "cpp_wrapper": False}
    assert cells["triton"]["code_id"] == cells["default"]["code_id"]
    contents = read_bundle(next((tmp_path / "runs").glob("*.gz")))
    assert contents.header.testbed == {"device": "cpu", CENSUS: "cpu"}
    assert {item.status for item in contents.measurements} == {Status.NOT_CHECKED, Status.UNAVAILABLE}
    assert not any(item.metrics or item.samples for item in contents.measurements)
    assert contents.texts
    runs = call("runs", "--db", "store.db", "--json", folder=tmp_path)
    assert [run["trigger"] for run in json.loads(runs.stdout)] == [CENSUS, "test"], tell(runs)
    compared = call("compare", "latest", "latest~1", "--db", "store.db", folder=tmp_path)
    is_one_line(compared, 3, "the database has 1 night")


@pytest.mark.slow
def test_a_range_names_the_commit_that_changed_code(tmp_path):
    """Three commits over the installed torch: a comment, a file that no cell imports, and another fusion rule."""
    clone, base = clone_with_changes(tmp_path / "clone")
    words = ("--git", clone, f"{base}..HEAD", "--wheel-commit", base, "--config", "triton", "--no-store", "--json")
    done = call(*ON_CPU, *words, folder=tmp_path)
    assert done.returncode == 0, tell(done)
    commits = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["generated"] for one in commits] == [1, 0, 1, 1], tell(done)
    assert [len(one["changed"]) for one in commits] == [0, 0, 1, 0]
    assert [one["acting"] for one in commits] == [[], [], [], ["torch/_inductor/runtime/hints.py"]]
    assert all(one["seconds"] > 0 for one in commits)


def test_a_bundle_to_compare_with_calls_nothing_of_its_own(tmp_path):
    """A model that only the bundle names, and a config that names a program, are left out with a line each."""
    (tmp_path / "evil.py").write_text("open('called', 'w').close()\n")
    foreign = Cell("user", "evil:build", Phase.INFERENCE, "float32", "cpu", 1, Config())
    program = replace(foreign, suite="huggingface", model="bert", config=Config(overrides={"cpp.cxx": "./evil"}))
    cells = [replace(passing(which), code_id="c0de") for which in (foreign, program)]
    path = write_bundle(tmp_path, header("r1", testbed={"device": "cpu"}), cells)
    found = call("census", "--against", path, "--no-store", "--cache", "cache", folder=tmp_path)
    is_one_line(found, 3, "what a bundle says is not called")
    assert not (tmp_path / "called").exists()


def test_a_cell_that_differs_from_a_gpu_is_left_out_until_it_agrees(tmp_path):
    memory = CensusMemory(tmp_path / "memory.json", differing={cell("bert").cell_id: "n1"})
    plan = memory.without_differing(Plan([cell("bert"), cell("gpt2")]))
    assert plan.cells == [cell("gpt2")]
    assert plan.left_out == [f"{cell('bert')}: its code differed from that of night n1, until --against finds it equal"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--git", ".", "HEAD", "--device-name", "cpu"), "is no range of commits: write GOOD..BAD"),
        (("--git", ".", "A..B", "--against", "x"), "leave out --source and --against"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path, words, line):
    is_one_line(call("census", *words, "--no-store", folder=tmp_path), 2, line)
