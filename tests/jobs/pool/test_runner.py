"""A run's name and branch, and a bundle that keeps what was measured when the run is interrupted."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from collector.bundle import BundleWriter, read_bundle
from collector.configs.backend_flags import BackendFlags
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.plan.duplicate_programs import Work
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.requested_options import ExecutionOptions, RequestedOptions, RunNames
from jobs.pool.runner import DeviceRun, branch_of, make_header, measure_devices, new_run_id, now, record
from tests.factories import ENVIRONMENT, header, passing

FACTS = {"torch": "2.13.0+cpu", "torch_git": "f" * 40, "device": "cpu", "cpu": "A CPU", "cores": 2, "python": "3.11"}
CELLS = [
    Cell("huggingface", "ViTTinyForImageClassification", Phase.INFERENCE, "float32", "cpu", size, Config())
    for size in (1, 2)
]
#: Ends a cell within its start, so that a run takes no longer than its processes need to be killed.
HASTY = Settings(rounds=5, timeout_s=0.2)


@pytest.mark.parametrize(
    ("version", "branch"),
    [
        ("2.13.0", "release/2.13"),
        ("2.13.1+cu130", "release/2.13"),
        ("2.13.0+cpu", "release/2.13"),
        ("2.14.0.dev20261101", "nightly"),
        ("2.14.0.dev20261101+cu130", "nightly"),
        ("2.14.0a0+git1234abc", "main"),
        ("2.14.0a0", "main"),
        ("2.13.0rc2", "release/2.13"),
        ("2.13.0+gita0b1c2d", "release/2.13"),
        ("10.2.0", "release/10.2"),
    ],
)
def test_a_version_tells_the_branch_it_was_built_from(version, branch):
    assert branch_of(version) == branch


def test_a_run_is_named_by_its_time_and_never_twice():
    names = {new_run_id() for _ in range(20)}
    assert len(names) > 15
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", name) for name in names)


def test_a_header_takes_branch_and_commit_from_torch_unless_they_are_given():
    found = make_header(FACTS, RunNames(), "0.1.0")
    assert (found.branch, found.commit) == ("release/2.13", "f" * 40)
    assert found.testbed == {"device": "cpu", "cpu": "A CPU", "cores": 2, **Settings().testbed()}
    given = make_header(FACTS, RunNames("main", "c" * 40, label="try"), "0.1.0")
    assert (given.branch, given.commit, given.label) == ("main", "c" * 40, "try")
    assert (found.branch_start, make_header(FACTS, RunNames(branch_start="b" * 40), "").branch_start) == ("", "b" * 40)


def test_flags_and_optimiser_that_were_asked_for_are_part_of_the_testbed():
    settings = Settings(flags=BackendFlags.parse(["tf32_matmul=off"]), optimizer="sgd")
    found = make_header(FACTS, RunNames(), "0.1.0", RequestedOptions(settings))
    assert found.testbed["flags"] == "tf32_cudnn reduced_math_attention"
    assert found.testbed["optimizer"] == "sgd"


def test_now_is_a_second_in_utc():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())


def measure(tmp_path, listen, execution=None):
    return work(tmp_path, Work(CELLS), listen, execution or ExecutionOptions(start="spawn"))


def work(tmp_path, left, listen, execution):
    shift = DeviceRun(left, DeviceSlot([[]]), FACTS, BundleWriter(tmp_path, header("r1"), CELLS))
    found = measure_devices([shift], HASTY, listen, {}, execution)
    assert found.lost is None
    (path,) = found.paths
    return path


def test_a_run_that_comes_to_its_end_is_a_closed_bundle(tmp_path):
    heard = []
    found = read_bundle(measure(tmp_path, heard.append))
    assert found.planned == CELLS
    assert [item.cell for item in found.measurements] == [item.cell for item in heard] == CELLS
    assert {item.status for item in heard} == {Status.TIMEOUT}
    assert FACTS in found.environments.values()
    assert found.finished_at is not None
    assert [path.name for path in tmp_path.iterdir()] == ["r1.jsonl.gz"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_run_leaves_what_it_measured_in_an_open_bundle(tmp_path, error):
    def interrupt(_):
        raise error

    with pytest.raises(error):
        measure(tmp_path, interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["r1.jsonl"]
    found = read_bundle(tmp_path / "r1.jsonl")
    assert found.planned == CELLS
    assert [item.cell for item in found.measurements] == CELLS[:1]
    assert found.finished_at is None
    assert found.damage == []


def test_what_the_budget_leaves_out_stays_planned_and_unmeasured(tmp_path):
    found = read_bundle(measure(tmp_path, list, ExecutionOptions(budget_s=0)))
    assert found.planned == CELLS
    assert found.measurements == []
    assert found.finished_at is not None


def test_an_outcome_is_written_after_what_its_ids_stand_for(tmp_path):
    writer = BundleWriter(tmp_path, header("r1"))
    measurement = passing(CELLS[0])
    for _ in range(2):
        assert record(writer, Outcome(measurement, ENVIRONMENT, {"freezing": True})) == [measurement]
    writer.abandon()
    found = read_bundle(writer.path)
    assert found.environments == {measurement.environment_id: ENVIRONMENT}
    assert found.programs == {measurement.program_id: {"freezing": True}}
    assert found.measurements == [measurement, measurement]


def test_an_outcome_is_written_under_the_name_of_every_twin(tmp_path):
    writer = BundleWriter(tmp_path, header("r1"))
    measurement = passing(CELLS[0])
    twins = [replace(CELLS[0], config=Config(mode=mode)) for mode in ("reduce-overhead", "max-autotune")]
    written = record(writer, Outcome(measurement, ENVIRONMENT, {"freezing": True}), twins)
    writer.abandon()
    assert [item.cell for item in written] == [CELLS[0], *twins]
    assert read_bundle(writer.path).measurements == written
    assert {tuple(item.samples["compiled_ms"]) for item in written} == {tuple(measurement.samples["compiled_ms"])}


def test_copies_from_an_earlier_attempt_are_written_before_anything_is_measured(tmp_path):
    copy, heard = passing(CELLS[1]), []
    path = work(tmp_path, Work([], copies=[copy]), heard.append, ExecutionOptions(start="spawn"))
    assert read_bundle(path).measurements == heard == [copy]
