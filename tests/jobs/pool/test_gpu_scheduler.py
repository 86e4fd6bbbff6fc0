"""One device and who may use it: real processes that play scripts and log every moment in which they ran."""

import os
import tempfile
from collections import Counter
from contextlib import closing
from itertools import combinations

import pytest

from collector.process.cell_process import CellProcess
from collector.process.launcher import Launcher
from collector.settings import Settings
from collector.vocabulary import Status
from jobs.pool import gpu_scheduler
from jobs.pool.gpu_scheduler import DeviceSlot, Job, Server
from jobs.pool.runner import Pool
from tests.collector.processes import servers
from tests.jobs.acting import FIRST, LAST, PATIENT, Stage, acted, player_variables, read_log, read_trace, slot, when


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def statuses(outcomes):
    """The status of every cell, by its number; every cell has one outcome."""
    found = {outcome.measurement.cell.batch_size: outcome.measurement.status for outcome in outcomes}
    assert len(found) == len(outcomes), "a cell has two outcomes"
    return found


def all_pass(outcomes, count):
    assert statuses(outcomes) == dict.fromkeys(range(1, count + 1), Status.PASS)


MIXED = [
    "device:0.3,work:0.1,tune:0.05*3,measure:0.1",
    "device:0.3,work:0.1,tune:0.1*2,work:0.1,measure:0.1",
    "work:0.1,device:0.1*2,work:0.3,measure:0.1",
    "measure:0.1,work:0.2,tune:0.1,device:0.1",
    "work:0.1,measure:0.1,device:0.1",
]


def test_who_may_use_the_device_beside_whom(stage):
    outcomes, trace = stage.play(MIXED, 4)
    all_pass(outcomes, len(MIXED))
    assert Counter(span.name for span in trace.spans) == {"device": 6, "work": 7, "tune": 6, "measure": 5}
    starts = [begin for lives in trace.lives.values() for begin, _ in lives]
    for span in trace.named("tune", "measure"):
        assert trace.others_in(span) == [], "while one tunes or measures no other runs"
        assert not any(span.holds(start) for start in starts), "and none starts"
    assert not any(one.overlaps(other) for one, other in combinations(trace.named("tune", "measure"), 2))
    first, second = trace.of(1, "device")[0], trace.of(2, "device")[0]
    assert first.overlaps(second), "several run their model at once"
    assert [tick for tick in trace.others_in(first) if tick.number == 2 and second.holds(tick.moment)]


def test_what_a_cell_stood_counts_against_no_limit_and_no_compile_time(stage):
    outcomes, trace = stage.play([*["work:0.4,measure:0.7"] * 3, "work:1.2"], 4, Settings(timeout_s=2.0))
    all_pass(outcomes, 4)
    ((began, ended),) = trace.lives[4]
    assert ended - began > 2.0
    (found,) = [item.measurement for item in outcomes if item.measurement.cell.batch_size == 4]
    stood = found.details
    assert stood["waited_s"] > 2.0
    assert stood["stood_s"] > 1.5  # of the 2.1 s for which the others measured, what it was not waiting already
    # What is left is what it worked, which takes longer than 1.2 s on a busy machine.
    assert found.metrics["compile_cold_s"] == pytest.approx(ended - began - stood["stood_s"], abs=0.3)


def test_a_cell_beyond_the_workers_runs_while_another_one_needs_no_cores(stage):
    where = DeviceSlot([FIRST], quiet_cores=LAST, extra_cells=1)
    cells = [acted("work:0.3,measure:0.6,work:0.5", 1), acted("work:1.0", 2)]
    outcomes = [outcome for _, outcome in Pool([stage.scheduler(cells, where)]).run()]
    all_pass(outcomes, 2)
    trace = read_trace(stage.log)
    (measure,), (before, after) = trace.of(1, "measure"), trace.of(1, "work")
    assert trace.others_in(before) == []
    assert trace.others_in(measure)
    assert trace.others_in(after._replace(begin=after.begin + 0.2)) == [], "but for what the scheduler hears late"
    (found,) = [item.measurement for item in outcomes if item.measurement.cell.batch_size == 2]
    assert found.details["stopped_s"] == pytest.approx(after.end - after.begin, abs=0.3)
    ((began, ended),) = trace.lives[2]
    assert found.metrics["compile_cold_s"] == pytest.approx(ended - began - found.details["stood_s"], abs=0.3)


def pids_of(stage, number, event, name="-"):
    lines = read_log(stage.log)
    return [line.pid for line in lines if (line.number, line.event, line.name) == (number, event, name)]


def test_jobs_of_another_server_share_the_device_and_are_their_own(stage):
    steps = "work:0.1,measure:0.2,work:0.1"
    scheduler = stage.scheduler([acted(steps, 1), acted(steps, 2)], slot(3))
    other = Server({**os.environ, **player_variables(stage.log)}, cores=FIRST)
    jobs = [Job(acted(steps, number), PATIENT, other) for number in (3, 4)]
    for job in jobs:
        scheduler.add(job)
    found = {}
    with closing(scheduler):
        pool = Pool([scheduler])
        while scheduler.busy:
            found |= {job: outcome for _, job, outcome in pool.turn()}
    all_pass(found.values(), 4)
    assert [found[job].measurement.cell.batch_size for job in jobs] == [3, 4]
    spans = read_trace(stage.log).named("measure")
    assert len(spans) == 4
    assert not any(one.overlaps(another) for one, another in combinations(spans, 2))


@pytest.mark.parametrize("target", [(Launcher, "start"), (gpu_scheduler, "CellProcess"), (CellProcess, "kill")])
def test_a_signal_while_a_cell_starts_or_ends_leaves_nothing(target, stage, monkeypatch):
    (temp := stage.folder / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    owner, name = target
    original, patch = getattr(owner, name), pytest.MonkeyPatch()

    def interrupted(*arguments, **options):
        patch.undo()
        original(*arguments, **options)
        raise SystemExit(143)

    patch.setattr(owner, name, interrupted)
    with pytest.raises(SystemExit):
        stage.play(["work:60"], 1, Settings(timeout_s=0.1))
    assert servers() == list(temp.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "script", "event", "name"),
    [
        ("measure", "work:0.2,measure:9", "tick", "measure"),  # it holds the device
        ("tune", "work:0.2,measure:9", "ask", "measure"),  # it waits
        ("measure", "work:9", "tick", "work"),  # it stands
    ],
)
def test_who_is_killed_is_missed_by_nobody(first, script, event, name, stage):
    def named():
        return pids_of(stage, 1, "tick", first) and pids_of(stage, 2, event, name)

    with when(named) as killed:
        outcomes, trace = stage.play([f"work:0.1,{first}:0.4,device:0.1", script, "work:0.4,tune:0.1,measure:0.1"], 3)
    assert len(killed) == 1
    assert statuses(outcomes) == {1: Status.PASS, 2: Status.CRASHED, 3: Status.PASS}
    assert trace.of(2, "measure") == []
