"""A run's name and branch, and the bundles of a run on one or several devices, with real processes side by side."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from collector.bundle import BundleWriter, read_bundle
from collector.process.launcher import LauncherError
from collector.process.outcome import Outcome
from collector.settings import BackendFlags, Settings
from collector.vocabulary import Config, Status
from jobs.plan.spared_cells import Work
from jobs.pool.gpu_scheduler import LostDeviceError
from jobs.pool.resuming import find_night
from jobs.pool.runner import DeviceRun, make_header, measure_devices, record
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RequestedOptions, RunNames
from tests.collector.processes import servers
from tests.factories import ENVIRONMENT, header, passing
from tests.jobs.acting import PATIENT, acted, player_variables, read_log, read_trace, slot, when

FACTS = {"torch": "2.13.0+cpu", "torch_git": "f" * 40, "device": "cpu", "cpu": "A CPU", "cores": 1}

BRANCHES = {
    "2.14.0.dev20261101+cu130": "nightly",
    "2.14.0a0+git1234abc": "main",
    "2.13.0rc2": "release/2.13",
    "2.13.0+gita0b1c2d": "release/2.13",
}


def test_a_header_has_names_and_testbed_of_the_request_or_of_torch():
    found = make_header(FACTS, RunNames())
    assert (found.branch, found.commit, found.branch_start) == ("release/2.13", "f" * 40, "")
    assert found.testbed == {"device": "cpu", "cpu": "A CPU", "cores": 1, **Settings().testbed()}
    built = {version: make_header({**FACTS, "torch": version}, RunNames()).branch for version in BRANCHES}
    assert built == BRANCHES
    settings = Settings(flags=BackendFlags.parse(["tf32_matmul=off"]), optimizer="sgd")
    names = RunNames("main", "c" * 40, label="try", branch_start="b" * 40)
    given = make_header(FACTS, names, RequestedOptions(settings))
    assert (given.branch, given.commit, given.label, given.branch_start) == ("main", "c" * 40, "try", "b" * 40)
    assert (given.testbed["flags"], given.testbed["optimizer"]) == ("tf32_cudnn reduced_math_attention", "sgd")


def test_an_outcome_is_written_after_its_ids_and_under_every_name(tmp_path):
    writer = BundleWriter(tmp_path, header("r1"))
    measurement = passing(acted("work:1", 1))
    duplicate = replace(measurement.cell, config=Config(mode="reduce-overhead"))
    written = record(writer, Outcome(measurement, ENVIRONMENT, {"freezing": True}), [duplicate])
    written += record(writer, Outcome(measurement, ENVIRONMENT, {"freezing": True}))
    writer.abandon()
    found = read_bundle(writer.path)
    assert found.environments == {measurement.environment_id: ENVIRONMENT}
    assert found.programs == {measurement.program_id: {"freezing": True}}
    assert found.measurements == written
    assert [item.cell for item in written] == [measurement.cell, duplicate, measurement.cell]
    assert written[1].samples == measurement.samples


class Night:
    """The device runs of a night, their bundles in one folder, played."""

    def __init__(self, folder):
        self.runs, self.log = folder / "runs", folder / "log"
        self.heard, self.notices = [], []

    def device_run(self, run_id, work, where=None, facts=FACTS, budget_s=float("inf")):
        work = work if isinstance(work, Work) else Work(work)
        planned = [cell for first in work.cells for cell in (first, *work.duplicates.get(first.cell_id, ()))]
        testbed = Testbed(where or slot(1), facts, ExecutionOptions(start="spawn", budget_s=budget_s))
        return DeviceRun(testbed, work, BundleWriter(self.runs, header(run_id, night="n"), planned))

    def measure(self, runs, listen=None, **more):
        variables = player_variables(self.log, **more)
        found = measure_devices(runs, PATIENT, listen or self.heard.append, variables, notice=self.notices.append)
        return found.lost, [read_bundle(path) for path in found.paths]

    def left(self):
        found = find_night(self.runs, None)
        return {run.contents.header.run_id: run.work(run.contents).cells for run in found}


@pytest.fixture
def night(tmp_path):
    return Night(tmp_path)


def outcomes(contents):
    """The status of every measurement by the cell's number; none is measured twice."""
    found = {item.cell.batch_size: item.status for item in contents.measurements}
    assert len(found) == len(contents.measurements)
    return found


def test_every_device_writes_its_own_bundle(night):
    mine = [acted("work:0.1,measure:0.1", number) for number in (1, 2, 3)]
    theirs = [acted("tune:0.1,end:fail_accuracy", number) for number in (4, 5)]
    runs = [night.device_run("a", mine, slot(2)), night.device_run("b", theirs), night.device_run("c", [])]
    runs[0].choices.mkdir()  # nothing is left to need them
    lost, found = night.measure(runs)
    assert lost is None
    assert {contents.header.run_id: contents.planned for contents in found} == {"a": mine, "b": theirs, "c": []}
    passed, failed = dict.fromkeys((1, 2, 3), Status.PASS), dict.fromkeys((4, 5), Status.FAIL_ACCURACY)
    assert [outcomes(contents) for contents in found] == [passed, failed, {}]
    assert all(contents.finished_at and not contents.damage for contents in found)
    assert all(FACTS in contents.environments.values() for contents in found)
    assert sorted(path.name for path in night.runs.iterdir()) == ["a.jsonl.gz", "b.jsonl.gz", "c.jsonl.gz"]
    assert sorted(item.cell.batch_size for item in night.heard) == [1, 2, 3, 4, 5]
    assert night.left() == {}


def test_what_the_budget_leaves_of_each_device_is_what_is_left(night, monkeypatch):
    parts = [[acted("work:0.4", 10 * device + number) for number in (1, 2, 3)] for device in (1, 2)]
    # The budgets are over once both cells have begun, and the clock stands still until then.
    clock = SimpleNamespace(monotonic=lambda: 1e9 * (set(read_trace(night.log).lives) == {11, 21}), sleep=time.sleep)
    monkeypatch.setattr("jobs.pool.runner.time", clock)
    runs = [night.device_run(name, cells, budget_s=1) for name, cells in zip("ab", parts, strict=True)]
    runs[0].choices.mkdir()
    _, found = night.measure(runs)
    assert runs[0].choices.exists(), "for who resumes the run"
    assert [list(outcomes(contents)) for contents in found] == [[11], [21]]
    assert night.left() == {"a": parts[0][1:], "b": parts[1][1:]}


def test_without_time_only_copies_of_earlier_outcomes_are_written(night):
    cells, copy = [acted("work:0.1", 1)], passing(acted("work:0.1", 2))
    _, (found,) = night.measure([night.device_run("a", Work(cells, copies=[copy]), budget_s=0)])
    assert found.measurements == night.heard == [copy]
    assert found.finished_at is not None
    assert read_log(night.log) == servers() == []


def test_servers_that_keep_dying_end_the_night_and_leave_it_to_be_resumed(night):
    runs = [night.device_run("a", [acted("work:1", 1)]), night.device_run("b", [acted("work:1", 2)])]
    with when(servers, times=100), pytest.raises(LauncherError, match="3 fork servers were lost in one run: `resume`"):
        night.measure(runs)
    assert night.left() == {"a": [acted("work:1", 1)], "b": [acted("work:1", 2)]}
    assert servers() == []


def test_a_lost_gpu_ends_the_night_and_what_is_left_is_left(night):
    facts = {**FACTS, "device": "cuda"}
    parts = [
        [acted("work:0.05", 1, "cuda"), acted("work:0.3,exit:1", 2, "cuda"), acted("work:0.05", 3, "cuda")],
        [acted("work:0.1", 4, "cuda"), acted("work:9", 5, "cuda")],
    ]
    runs = [night.device_run(name, cells, facts=facts) for name, cells in zip("ab", parts, strict=True)]
    lost, found = night.measure(runs, PLAY_HEALTH="the GPU is gone")
    assert isinstance(lost, LostDeviceError)
    assert re.search(r"the GPU is gone.*acted/work:0.3,exit:1", str(lost))
    assert [outcomes(contents) for contents in found] == [{1: Status.PASS}, {4: Status.PASS}]
    assert all(contents.finished_at for contents in found)
    assert night.left() == {"a": parts[0][1:], "b": parts[1][1:]}
