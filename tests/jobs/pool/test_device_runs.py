"""A run on several devices: a bundle each, real processes side by side."""

from __future__ import annotations

import pytest

from collector.bundle import BundleWriter, read_bundle
from collector.process.launcher import LauncherError
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.plan.duplicate_programs import SAME_PROGRAM, Work
from jobs.plan.planning import tunes
from jobs.pool.gpu_scheduler import DeviceSlot, LostDeviceError
from jobs.pool.requested_options import ExecutionOptions
from jobs.pool.resuming import find_night
from jobs.pool.runner import DeviceRun, measure_devices, now
from tests.collector.processes import servers
from tests.factories import header
from tests.jobs.acting import CORES, PATIENT, acted, end_budget_when, player_variables, read_log, read_trace, slot, when

FACTS = {"torch": "2.13.0+cpu", "torch_git": "f" * 40, "device": "cpu", "cpu": "A CPU", "cores": 1}
SPAWN = ExecutionOptions(start="spawn")


class Night:
    """The device runs of a night, their bundles in one folder, played."""

    def __init__(self, folder):
        self.runs, self.log, self.heard = folder / "runs", folder / "log", []

    def device_run(self, run_id, work, where=None, facts=FACTS):
        work = work if isinstance(work, Work) else Work(work)
        planned = [cell for first in work.cells for cell in (first, *work.duplicates.get(first.cell_id, ()))]
        writer = BundleWriter(self.runs, header(run_id, night="n"), planned)
        return DeviceRun(work, where or slot(1), facts, writer)

    def measure(self, runs, execution=SPAWN, **more):
        found = measure_devices(runs, PATIENT, self.heard.append, player_variables(self.log, **more), execution)
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
    lost, found = night.measure(
        [night.device_run("a", mine, slot(2)), night.device_run("b", theirs), night.device_run("c", [])]
    )
    assert lost is None
    assert [contents.header.run_id for contents in found] == ["a", "b", "c"]
    assert [contents.planned for contents in found] == [mine, theirs, []]
    assert [outcomes(contents) for contents in found] == [
        dict.fromkeys((1, 2, 3), Status.PASS),
        dict.fromkeys((4, 5), Status.FAIL_ACCURACY),
        {},
    ]
    assert all(contents.finished_at and not contents.damage for contents in found)
    assert all(FACTS in contents.environments.values() for contents in found)
    assert sorted(item.cell.batch_size for item in night.heard) == [1, 2, 3, 4, 5]
    assert night.left() == {}


def test_a_night_of_nothing_is_closed(night):
    lost, (found,) = night.measure([night.device_run("a", [])])
    assert (lost, found.planned, found.finished_at is not None) == (None, [], True)
    assert read_log(night.log) == []


def test_what_the_budget_leaves_of_each_device_is_what_is_left(night, monkeypatch):
    parts = [[acted("work:0.4", 10 * lane + number) for number in (1, 2, 3)] for lane in (1, 2)]
    end_budget_when(monkeypatch, lambda: set(read_trace(night.log).lives) == {11, 21})
    _, found = night.measure(
        [night.device_run(name, cells) for name, cells in zip("ab", parts, strict=True)],
        ExecutionOptions(start="spawn", budget_s=1),
    )
    assert [list(outcomes(contents)) for contents in found] == [[11], [21]]
    assert night.left() == {"a": parts[0][1:], "b": parts[1][1:]}


def test_twins_get_the_outcome_in_the_bundle_of_their_cell(night):
    first = acted("work:0.05", 1)
    twin = Cell(first.suite, first.model, first.phase, first.dtype, first.device, 1, Config(backend="aot_eager"))
    _, (a, b) = night.measure(
        [night.device_run("a", [acted("work:0.1", 2)]), night.device_run("b", Work([first], {first.cell_id: [twin]}))]
    )
    assert [item.cell for item in a.measurements] == [acted("work:0.1", 2)]
    assert [item.cell for item in b.measurements] == [first, twin]
    assert SAME_PROGRAM in b.measurements[1].details


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_night_leaves_all_its_bundles_open(night, error):
    def interrupt(_):
        raise error

    runs = [
        night.device_run("a", [acted("work:0.1", 1), acted("work:9", 2)]),
        night.device_run("b", [acted("work:9", 3)]),
    ]
    with pytest.raises(error):
        measure_devices(runs, PATIENT, interrupt, player_variables(night.log), SPAWN)
    assert sorted(path.name for path in night.runs.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert night.left() == {"a": [acted("work:9", 2)], "b": [acted("work:9", 3)]}
    assert servers() == []
    # Nobody holds their locks any more.
    for path in sorted(night.runs.iterdir()):
        writer, _ = BundleWriter.reopen(path, now())
        writer.abandon()


def test_a_device_whose_server_is_lost_goes_on_and_the_other_notices_nothing(night):
    def server_of_2():
        parents = {line.parent for line in read_log(night.log) if line.number == 2 and line.event == "tick"}
        return [pid for pid in servers() if pid in parents]

    runs = [
        night.device_run("a", [acted("work:0.6", 1)]),
        night.device_run("b", [acted("work:0.3", 2), acted("work:0.1", 3)]),
    ]
    with when(server_of_2) as killed:
        _, (a, b) = night.measure(runs)
    assert len(killed) == 1
    assert (outcomes(a), outcomes(b)) == ({1: Status.PASS}, {2: Status.PASS, 3: Status.PASS})
    assert {number: len(lives) for number, lives in read_trace(night.log).lives.items()} == {1: 1, 2: 2, 3: 1}


def test_servers_that_keep_dying_end_the_night_and_leave_it_to_be_resumed(night):
    runs = [night.device_run("a", [acted("work:1", 1)]), night.device_run("b", [acted("work:1", 2)])]
    with when(servers, times=100), pytest.raises(LauncherError):
        night.measure(runs)
    assert night.left() == {"a": [acted("work:1", 1)], "b": [acted("work:1", 2)]}


def test_a_lost_gpu_ends_the_night_and_what_is_left_is_left(night):
    facts = {**FACTS, "device": "cuda"}
    parts = [
        [acted("work:0.05", 1, "cuda"), acted("work:0.3,exit:1", 2, "cuda"), acted("work:0.05", 3, "cuda")],
        [acted("work:0.1", 4, "cuda"), acted("work:9", 5, "cuda")],
    ]
    runs = [night.device_run(name, cells, facts=facts) for name, cells in zip("ab", parts, strict=True)]
    lost, found = night.measure(runs, PLAY_HEALTH="the GPU is gone")
    assert isinstance(lost, LostDeviceError)
    assert [outcomes(contents) for contents in found] == [{1: Status.PASS}, {4: Status.PASS}]
    assert all(contents.finished_at for contents in found)
    assert night.left() == {"a": parts[0][1:], "b": parts[1][1:]}


def early(template, model="ViTTinyForImageClassification"):
    return Cell("huggingface", model, Phase.INFERENCE, "float32", "cpu", 1, Config(template=template))


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
@pytest.mark.slow
def test_two_parts_of_real_workers(tmp_path):
    parts = [[early("tritn"), early("triton", "NoSuchModel")], [early("cudagraphs")]]
    assert not any(map(tunes, parts[0]))
    night = Night(tmp_path)
    where = [DeviceSlot([[core]]) for core in (CORES[0], CORES[-1])]
    runs = [night.device_run(name, *both) for name, both in zip("ab", zip(parts, where, strict=True), strict=True)]
    found = measure_devices(runs, Settings(timeout_s=120), night.heard.append, {}, SPAWN)
    contents = [read_bundle(path) for path in found.paths]
    assert [[item.status for item in one.measurements] for one in contents] == [
        [Status.CONFIG_ERROR, Status.MODEL_FAIL_TO_LOAD],
        [Status.UNAVAILABLE],
    ]
    assert [[item.cell for item in one.measurements] for one in contents] == parts
