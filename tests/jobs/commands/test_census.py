"""The verb census on a CPU: cells as lines or JSON, a bundle that is no night, a comparison, a range of commits."""

import json
from dataclasses import replace

import pytest

from collector.bundle import CENSUS, BundleWriter, read_bundle
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusMemory, read_truth
from jobs.commands.census import _plan
from jobs.plan.planning import Plan
from jobs.requested_options import Selection
from tests.command_line import call, is_one_line, tell
from tests.factories import cell, header, night, passing, write_bundle
from tests.jobs.census.torch_clone import clone_with_changes

MODEL = "tests.collector.census.small_models:net"
ON_CPU = ("census", "--device-name", "cpu", "--model", MODEL, "--cache", "cache")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A census that is stored beside a night, and its folder."""
    folder = tmp_path_factory.mktemp("census")
    bundle = night(folder / "nights", "night-1")
    assert call("ingest", bundle, "--db", "store.db", folder=folder).returncode == 0
    words = ("--config", "triton", "--config", "default", "--config", "cpp_wrapper", "--db", "store.db", "--json")
    return call(*ON_CPU, *words, folder=folder), folder


def bundle_in(folder):
    """The bundle of the first census: other tests may have written more, in whatever order."""
    return min((folder / "runs").glob("*.gz"))


def test_each_cell_is_an_object(done):
    found, _ = done
    assert found.returncode == 0, tell(found)
    cells = {item["config"]: item for item in map(json.loads, found.stdout.splitlines())}
    assert cells.keys() == {"triton", "default", "cpp_wrapper"}
    assert cells["triton"]["known"]
    assert cells["triton"]["code_id"] == cells["default"]["code_id"]
    assert not cells["cpp_wrapper"]["known"]


def test_the_bundle_is_a_census_without_latencies(done):
    _, folder = done
    contents = read_bundle(bundle_in(folder))
    assert contents.header.testbed == {"device": "cpu", CENSUS: "cpu"}
    assert {item.status for item in contents.measurements} == {Status.NOT_CHECKED, Status.UNAVAILABLE}
    assert not any(item.metrics or item.samples for item in contents.measurements)
    assert contents.texts


def test_a_stored_census_is_no_night(done):
    _, folder = done
    runs = call("runs", "--db", "store.db", "--json", folder=folder)
    assert [run["trigger"] for run in json.loads(runs.stdout)] == [CENSUS, "test"], tell(runs)
    compared = call("compare", "latest", "latest~1", "--db", "store.db", folder=folder)
    is_one_line(compared, 2, "the database has 1 night")


def test_a_second_census_is_found_again_and_agrees_with_the_first(done):
    found, folder = done
    path = bundle_in(folder)
    truth = folder / "truth.jsonl.gz"
    if not truth.exists():  # as a device that measured the same code would have it
        contents = read_bundle(path)
        header = type(contents.header)(**{**contents.header.to_json(), "run_id": "truth", "trigger": "nightly"})
        writer = BundleWriter(folder / "device", header, contents.planned)
        for environment_id, data in contents.environments.items():
            writer.environment(environment_id, data)
        for item in contents.measurements:
            writer.measurement(item)
        writer.close("2026-08-01T00:00:00+00:00").rename(truth)
    # A model that only a bundle names is not called: the command line names it, too.
    words = ("--against", truth, "--config", "triton", "--config", "default", "--no-store", "--json")
    again = call(*ON_CPU, *words, folder=folder)
    assert again.returncode == 0, tell(again)
    cells = [json.loads(line) for line in again.stdout.splitlines()]
    assert {item["against"] for item in cells} == {"equal"}
    codes = {item["code_id"] for item in map(json.loads, found.stdout.splitlines()) if item["known"]}
    assert {item["code_id"] for item in cells} == codes


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--git", ".", "HEAD", "--device-name", "cpu"), "is no range of commits: write GOOD..BAD"),
        (("--git", ".", "A..B", "--against", "x"), "leave out --source and --against"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path, words, line):
    is_one_line(call("census", *words, "--no-store", folder=tmp_path), 2, line)


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


def test_a_selection_chooses_among_the_cells_of_a_night(tmp_path):
    cells = [
        cell(model, config, device="cpu", **form)
        for model, config, form in (
            ("bert", Config(template="triton"), {}),
            ("bert", Config(template="freezing"), {}),
            ("bert", Config(template="triton"), {"phase": Phase.TRAINING}),
            ("gpt2", Config(template="triton"), {"dtype": "float32"}),
        )
    ]
    run = write_bundle(tmp_path, header("r1"), [replace(passing(one), code_id="c0de") for one in cells])
    truth, place = read_truth(str(run), ""), CensusPlace("cpu")

    def chosen(*configs, **selection):
        return [cells.index(one) for one in _plan(place, Selection(**selection), configs, truth).cells]

    assert chosen() == [0, 1, 2, 3]
    assert chosen("triton", models=("huggingface/b*",)) == [0, 2]
    assert chosen(phases=("training",)) == [2]
    assert chosen(dtype="float32", suites=("huggingface",)) == [3]
    assert chosen(models=("t5",)) == []


def test_a_cell_that_differs_from_a_gpu_is_left_out_until_it_agrees(tmp_path):
    memory = CensusMemory(tmp_path / "memory.json", differing={cell("bert").cell_id: "n1"})
    plan = memory.without_differing(Plan([cell("bert"), cell("gpt2")]))
    assert plan.cells == [cell("gpt2")]
    assert plan.left_out == [f"{cell('bert')}: its code differed from that of night n1, until --against finds it equal"]
