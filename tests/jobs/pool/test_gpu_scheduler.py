"""Cells on one device, with real processes: each once, whatever is killed meanwhile, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from collector.process.cell_process import CellProcess
from collector.process.launcher import Launcher, LauncherError, Preload
from collector.settings import Settings
from collector.vocabulary import Stage, Status
from jobs.pool import gpu_scheduler
from jobs.pool.device_pool import Pool
from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler, LostDeviceError
from tests.collector.processes import EARLY, EARLY_STATUS, LONG, ROOT, cell, children, dead, servers, wait_until

needs_no_gpu = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")
CORES = sorted(os.sched_getaffinity(0))
#: There is no such device to compile for: torch is imported ahead, and nothing else takes time.
NOWHERE = Preload("nowhere")


@pytest.fixture
def temp(tmp_path, monkeypatch):
    """The folder in which cells make theirs."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    return tmp_path / "temp"


def scheduler(cells, settings=LONG, cores=((),), preload=NOWHERE, **environ):
    return GpuScheduler(cells, settings, DeviceSlot([list(item) for item in cores]), {**os.environ, **environ}, preload)


def measured(*schedulers, budget_s=float("inf")):
    return [(index, outcome.measurement) for index, outcome in Pool(schedulers, budget_s).run()]


@pytest.mark.parametrize("start", ["spawn", pytest.param("fork", marks=pytest.mark.slow)])
def test_one_worker_measures_in_the_order_of_the_plan_and_leaves_nothing(start, temp):
    measurements = [item for _, item in measured(scheduler(EARLY, preload=Preload("cpu") if start == "fork" else None))]
    assert [(item.cell, item.status) for item in measurements] == list(zip(EARLY, EARLY_STATUS, strict=True))
    for item, words in zip(measurements, ("did you mean triton", "GPU only", "NoSuchModel"), strict=False):
        assert words in item.failure.message
    assert measurements[0].environment_id == measurements[1].environment_id is not None
    assert measurements[0].details["cpu_s"] > 0
    assert servers() == list(temp.iterdir()) == []


@pytest.mark.parametrize("gone", [False, True])
def test_a_lane_uses_the_fork_server_that_was_started_for_it_unless_that_has_gone(temp, monkeypatch, gone):
    early = Launcher()
    if gone:
        early.close()
    started = []
    monkeypatch.setattr(
        "jobs.pool.gpu_scheduler.Launcher", lambda *rest: started.append(Launcher(*rest)) or started[-1]
    )
    one = GpuScheduler(EARLY[:1], LONG, DeviceSlot([[]]), os.environ, launcher=early)
    assert one.first_at is None
    began = time.monotonic()
    assert len(measured(one)) == 1
    assert began < one.first_at < time.monotonic()
    assert len(started) == gone
    assert early.lost
    assert servers() == []


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_two_workers_measure_every_cell_once(temp):
    found = [item for _, item in measured(scheduler(EARLY, cores=[CORES[:1], CORES[1:2]]))]
    assert {item.cell: item.status for item in found} == dict(zip(EARLY, EARLY_STATUS, strict=True))
    assert len(found) == len(EARLY)
    assert list(temp.iterdir()) == []


def test_a_time_limit_ends_one_cell_and_not_the_run(temp):
    found = [item for _, item in measured(scheduler([cell(), cell("aten")], Settings(timeout_s=0.3), preload=None))]
    assert [item.status for item in found] == [Status.TIMEOUT, Status.TIMEOUT]
    assert {item.failure.stage for item in found} == {Stage.START}
    assert list(temp.iterdir()) == []


def test_without_budget_nothing_is_measured_and_nothing_started(temp):
    assert measured(scheduler(EARLY), budget_s=0) == []
    assert servers() == list(temp.iterdir()) == []


@pytest.mark.parametrize(
    "target",
    [(Path, "mkdir"), (Launcher, "start"), (gpu_scheduler, "CellProcess"), (CellProcess, "kill"), (shutil, "rmtree")],
)
def test_a_signal_while_a_cell_starts_or_ends_leaves_nothing(target, temp):
    owner, name = target
    original, patch = getattr(owner, name), pytest.MonkeyPatch()

    def interrupted(*arguments, **options):
        if str(temp) in str(arguments) or name != "mkdir":
            patch.undo()
            if name != "rmtree":
                original(*arguments, **options)
            raise SystemExit(143)

    patch.setattr(owner, name, interrupted)
    with pytest.raises(SystemExit):
        measured(scheduler([cell()], Settings(timeout_s=0.1), preload=None))
    assert servers() == list(temp.iterdir()) == []


class Killer(threading.Thread):
    """Kills fork servers, each once it has a child and at most so many of them."""

    def __init__(self, most):
        super().__init__(daemon=True)
        self.most, self.killed, self.over = most, [], threading.Event()

    def run(self):
        while not self.over.is_set() and len(self.killed) < self.most:
            for pid in servers():
                if pid not in self.killed and children(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.killed.append(pid)
            time.sleep(0.02)


@pytest.fixture
def killer():
    """Starts killing; stops when the test is over."""
    started = []

    def start(most):
        started.append(Killer(most))
        started[-1].start()
        return started[-1]

    yield start
    for thread in started:
        thread.over.set()
        thread.join(5)


def test_a_server_killed_in_the_middle_costs_no_cell_its_measurement(temp, killer):
    thread = killer(2)
    found = [item for _, item in measured(scheduler(EARLY, preload=None))]
    assert len(thread.killed) == 2
    assert [(item.cell, item.status) for item in found] == list(zip(EARLY, EARLY_STATUS, strict=True))
    assert servers() == list(temp.iterdir()) == []


@pytest.mark.slow
def test_a_server_that_is_killed_between_two_cells_is_replaced(temp):
    outcomes = Pool([scheduler(EARLY)]).run()
    found = [next(outcomes)[1].measurement]
    (server,) = servers()
    os.kill(server, signal.SIGKILL)
    found += [outcome.measurement for _, outcome in outcomes]
    assert [(item.cell, item.status) for item in found] == list(zip(EARLY, EARLY_STATUS, strict=True))
    assert servers() == list(temp.iterdir()) == []


def test_after_three_lost_servers_it_gives_up_and_leaves_nothing(temp, killer):
    thread = killer(3)
    with pytest.raises(LauncherError, match="3 fork servers were lost"):
        measured(scheduler(EARLY, preload=None))
    assert len(thread.killed) == 3
    assert servers() == list(temp.iterdir()) == []


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
@pytest.mark.slow
def test_a_server_lost_when_only_cells_to_run_alone_are_left_is_replaced(temp, tmp_path):
    # Every cell runs out of memory: beside another that proves nothing, and it is measured again alone.
    (tmp_path / "no_memory.py").write_text(
        "import collector.process.worker, time\n"
        "def serve(request, host):\n"
        "    time.sleep(0.3)\n"
        "    raise MemoryError('no memory')\n"
        "collector.process.worker.serve = serve\n"
    )
    cells = [cell(), cell("aten")]
    preload = Preload("nowhere", ["no_memory"])
    one = scheduler(cells, cores=[CORES[:1], CORES[1:2]], preload=preload, PYTHONPATH=f"{tmp_path}:{ROOT}")
    found = []

    def step():
        one.start_waiting(lambda *_: None)
        found.extend(outcome.measurement for outcome in one.turn(lambda _: None))

    try:
        wait_until(lambda: step() or len(list(temp.glob("*/*"))) == 2, 60)  # both run
        (server,) = servers()
        wait_until(lambda: children(server) == [])
        # Takes in how both ended and starts none of them: that is for the next step.
        wait_until(lambda: found.extend(one.turn(lambda _: None)) or list(temp.glob("*/*")) == [])
        assert found == []
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: dead(server))
        found.extend(one.turn(lambda _: None))  # sees that the server is lost
        wait_until(lambda: step() or not one.busy, 30)
    finally:
        one.close(lambda _: None)
    assert {item.cell: item.status for item in found} == dict.fromkeys(cells, Status.OOM)
    assert len(found) == 2


GPU = [cell(device="cuda", batch_size=size) for size in (1, 2, 3)]


@needs_no_gpu
@pytest.mark.parametrize("preload", [pytest.param(None, marks=pytest.mark.slow), NOWHERE], ids=["spawn", "fork"])
def test_without_its_gpu_a_lane_ends_with_the_first_suspicious_cell(temp, preload):
    unknown = cell(model="NoSuchModel", device="cuda")
    outcomes = Pool([scheduler([unknown, *GPU], preload=preload)]).run()
    # An unknown model says nothing about the device.
    assert next(outcomes)[1].measurement.status is Status.MODEL_FAIL_TO_LOAD
    with pytest.raises(LostDeviceError) as caught:
        next(outcomes)
    assert str(GPU[0]) in str(caught.value)
    assert "the GPU no longer answers (" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert servers() == list(temp.iterdir()) == []


@needs_no_gpu
@pytest.mark.slow
def test_a_cell_that_does_not_come_back_is_suspicious_on_a_gpu_only(temp):
    hasty = Settings(timeout_s=0.3)
    ((_, found),) = measured(scheduler([cell()], hasty, preload=None))
    assert found.status is Status.TIMEOUT
    with pytest.raises(LostDeviceError):
        measured(scheduler(GPU, hasty, preload=None))


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_a_cell_whose_reference_had_no_room_beside_others_is_measured_again_alone(temp, tmp_path):
    (tmp_path / "no_room.py").write_text(
        "import collector.process.worker, pathlib, time\n"
        "from collector.process.outcome import Outcome\n"
        "from collector.vocabulary import Cell, Measurement, Status\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "def serve(request, host):\n"
        "    cell = Cell.from_json(request['cell'])\n"
        "    name = cell.config.name\n"
        "    turn = len(list(here.glob(f'{name}-*')))\n"
        "    (here / f'{name}-{turn}').touch()\n"
        "    deadline = time.monotonic() + 20\n"
        "    while turn == 0 and len(list(here.glob('*-0'))) < 2 and time.monotonic() < deadline:\n"
        "        time.sleep(0.01)\n"  # both run at once the first time
        "    time.sleep(0.2)\n"
        "    lacked_room = name == 'aten' and turn == 0\n"
        "    found = Measurement(cell, Status.PASS, '2026-01-01T00:00:00+00:00', 1.0, details={'turn': turn})\n"
        "    host.send({'outcome': Outcome(found, lacked_room=lacked_room).to_json()})\n"
        "collector.process.worker.serve = serve\n"
    )
    preload = Preload("nowhere", ["no_room"])
    one = scheduler(
        [cell(), cell("aten")], cores=[CORES[:1], CORES[1:2]], preload=preload, PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    found = {item.cell.config.name: item.details["turn"] for _, item in measured(one)}
    assert found == {"triton": 0, "aten": 1}
