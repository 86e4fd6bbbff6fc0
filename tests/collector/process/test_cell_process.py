"""A cell is a process with a time limit; nothing of it is left behind, however it ends. Real processes throughout."""

import json
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from collector.process.cell_process import CellProcess
from collector.process.launcher import Launcher, LauncherError
from collector.process.orphans import LENGTH, PLACEHOLDER, VARIABLE, processes_with_token, strays
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Measurement, Stage, Status
from tests.collector.processes import LONG, cell, dead, state, wait_until

#: Hangs in the middle of its start, before torch is imported, as a cell would that never comes back.
HANGING = "import time; time.sleep(600)"
#: Starts a child in a session of its own: killpg does not reach it, its environment gives it away.
WITH_A_CHILD = f"""
import os, subprocess, sys, time
if os.environ.pop('START_A_CHILD', None):
    subprocess.Popen([sys.executable, '-S', '-c', {HANGING!r}], start_new_session=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def launcher():
    found = Launcher()
    yield found
    found.close()


@pytest.fixture
def temp(tmp_path, monkeypatch):
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def with_custom(temp, tmp_path, launcher):
    """Starts a cell whose process runs this code before anything else."""

    def start(code, settings=LONG, **environ):
        (tmp_path / "sitecustomize.py").write_text(code)
        return CellProcess(cell(), settings, launcher, {**os.environ, "PYTHONPATH": str(tmp_path), **environ})

    return start


def wait_for_end(process, seconds=20.0):
    def over():
        process.pump()
        return process.finished

    wait_until(over, seconds)
    return process.close().measurement


def nothing_left(folder, token):
    return list(folder.iterdir()) == [] and list(processes_with_token(token)) == []


def token_of(folder):
    (found,) = folder.iterdir()
    return found.name


def test_a_child_in_a_session_of_its_own_stands_and_ends_with_its_cell(with_custom, temp):
    process = with_custom(WITH_A_CHILD, START_A_CHILD="1")
    token = token_of(temp)
    try:
        wait_until(lambda: len(strays([process.pid])[process.pid]) == 1)
        (child,) = strays([process.pid])[process.pid]
        # One that is stopped between fork and exec keeps the process from stopping, too: it waits in vfork.
        wait_until(lambda: b"-S" in Path(f"/proc/{child}/cmdline").read_bytes())
        for stop, states in ((process.stand, "T"), (process.go_on, "RSD"), (process.stand, "T")):
            stop()
            wait_until(lambda states=states: state(child) in states and state(process.pid) in states)
    finally:
        found = process.close().measurement
    assert found.failure.exception == "Interrupted"
    wait_until(lambda: nothing_left(temp, token), 3)


def test_a_cell_over_its_time_is_a_timeout_that_names_the_stage(with_custom, temp):
    began = time.monotonic()
    found = wait_for_end(with_custom(HANGING, Settings(timeout_s=0.5)))
    assert 0.5 <= time.monotonic() - began < 60
    assert found.status is Status.TIMEOUT
    assert found.details == {"waited_s": 0.0, "stopped_s": 0.0, "held_s": {}}  # what it cost is told of it, too
    assert found.failure.stage is Stage.START
    assert found.failure.message == "not done after 0.5 s, in stage start"
    assert list(temp.iterdir()) == []


def test_a_process_reads_its_request_in_an_environment_of_its_own(with_custom, temp):
    code = (
        "import json, os, sys\n"
        f"names = ('TMPDIR', 'TRITON_CACHE_DIR', 'TORCHINDUCTOR_CACHE_DIR', {VARIABLE!r}, 'HF_HUB_OFFLINE', 'HOME')\n"
        "values = [os.environ[name] for name in names]\n"
        "print(json.dumps([json.loads(sys.stdin.readline()), values, *map(os.listdir, values[:3])]), flush=True)\n"
        "os._exit(1)\n"
    )
    process = with_custom(code, TRITON_CACHE_DIR="/shared")
    folder = temp / token_of(temp)
    request, values, *contents = json.loads(wait_for_end(process).log_tail)
    assert request == {"cell": cell().to_json(), "settings": LONG.to_json()}
    assert values[:3] == [str(folder / name) for name in ("tmp", "triton", "inductor")]
    assert values[3:] == [folder.name, "1", os.environ["HOME"]]
    assert contents == [[], [], []]  # no cache of an earlier cell
    assert len(folder.name) == LENGTH == len(PLACEHOLDER)  # it is written over the placeholder


def test_a_cells_programs_are_kept_where_it_is_told_to(with_custom, tmp_path):
    code = (
        "import os\n"
        "for name in ('TMPDIR', 'TRITON_CACHE_DIR', 'TORCHINDUCTOR_CACHE_DIR'):\n"
        "    print(len(os.listdir(os.environ[name])), end=' ', flush=True)\n"
        "    open(os.environ[name] + '/kept', 'w').close()\n"
        "os._exit(1)\n"
    )
    settings = replace(LONG, compiled=str(tmp_path / "programs"))
    logs = [wait_for_end(with_custom(code, settings)).log_tail for _ in range(2)]
    assert logs == ["0 0 0 ", "0 1 1 "]
    assert [path.name for path in (tmp_path / "programs").iterdir()] == [cell().cell_id]


def test_a_cell_that_has_reported_may_wait_for_the_device_to_leave_it(with_custom, monkeypatch):
    """As `collector.process.worker.leave` does: it reports, asks for the device, and ends."""
    monkeypatch.setattr("collector.process.cell_process._GRACE_S", 0.0)
    found = Measurement(cell(), Status.PASS, "2026-08-01T02:00:00+00:00", 9.0)
    code = f"""
import json, os, sys
report = int(sys.orig_argv[sys.orig_argv.index("--report") + 1])
sys.stdin.readline()
for said in ({Outcome(found).to_json()!r}, {{"ask": "device", "bytes": 0}}):
    os.write(report, json.dumps({{"outcome": said}} if "ask" not in said else said).encode() + b"\\n")
sys.stdin.readline()
os._exit(0)
"""
    process = with_custom(code)

    def asks():
        process.pump()
        return process.asks

    wait_until(asks, 20)
    assert process.is_leaving
    assert not process.finished
    with monkeypatch.context() as patched:
        patched.setattr("collector.process.cell_process._LEAVE_S", 0.0)
        wait_until(lambda: process.finished, 20)  # a lost device is granted to nobody
    process.grant()
    assert wait_for_end(process).status is Status.PASS


def test_what_a_cell_stood_is_taken_out_of_compiling_and_of_tuning(with_custom):
    process = with_custom(HANGING)
    process.stood = [(100.0, 101.0), (100.5, 102.0), (200.0, 200.25)]
    found = Measurement(cell(), Status.PASS, "2026-08-01T02:00:00+00:00", 9.0)
    found.metrics = {"compile_cold_s": 2.0, "tuning_s": 2.0, "compile_warm_s": 0.75}
    windows = {"tuning_s": [(100.5, 101.5), (102.0, 103.0)], "compile_cold_s": [(99.5, 100.5), (101.5, 102.5)]}
    process._subtract_standing(Outcome(found, compile_windows=windows | {"compile_warm_s": [(200.1, 201.0)]}))
    process.close()
    assert found.metrics == {"compile_cold_s": 1.0, "tuning_s": 1.0, "compile_warm_s": pytest.approx(0.6)}
    assert found.details == {"stood_s": 1.0, "stood_tuning_s": 1.0, "stood_warm_s": 0.15}


def test_a_cell_whose_server_died_is_closed_and_another_cannot_start(temp):
    launcher = Launcher()
    process = CellProcess(cell(), LONG, launcher)
    token = token_of(temp)
    os.kill(launcher.pid, signal.SIGKILL)
    wait_until(lambda: dead(process.pid))
    assert not process.finished  # how it ended nobody can tell
    began = time.monotonic()
    assert process.close().measurement.failure.exception == "Interrupted"
    assert time.monotonic() - began < 30
    assert nothing_left(temp, token)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(LauncherError):
        CellProcess(cell(), LONG, launcher)
    assert list(temp.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    launcher.close()
