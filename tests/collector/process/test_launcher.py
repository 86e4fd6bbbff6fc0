"""Processes that a launcher starts, fresh ones and forked ones alike: what they are given, how their end is told."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.orphans import kill_tokens, processes_with_token
from tests.collector.processes import FAMILY, SLEEP, Script, dead, serving, state, wait_until


@pytest.fixture(scope="module", params=["spawn", "fork"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kind):
    return tmp_path_factory.mktemp(kind) / "hook"


@pytest.fixture(scope="module")
def launcher(folder, kind):
    with serving(folder, kind) as found:
        yield found
    assert dead(found.pid)


@pytest.fixture
def script(launcher, folder):
    started = []

    def start(code, **more):
        started.append(Script(launcher, code, folder, **more))
        return started[-1]

    yield start
    for item in started:
        item.close()


def test_a_process_has_exactly_the_environment_that_was_asked_for(script, kind):
    code = "import json, os; print(json.dumps(dict(os.environ, LARGE=len(os.environ['LARGE']))))"
    found = script(code, ODD="aé\udcff\n\t\\\"'=", LARGE="x" * 100_000)
    added = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "OPENBLAS_NUM_THREADS": "1", "TORCHINDUCTOR_WORKER_START": "fork"}
    added[SKIP_VARIABLE] = "1"  # what the suite tells the server is kept for what it forks
    assert found.result() == found.given | {"LARGE": 100_000} | (added if kind == "fork" else {})


def test_a_process_keeps_to_its_cores_and_to_all_without_a_wish(script):
    code = "import json, os; print(json.dumps(sorted(os.sched_getaffinity(0))))"
    here = sorted(os.sched_getaffinity(0))
    assert script(code, cores=here[-1:]).result() == here[-1:]
    assert script(code).result() == here


def test_two_processes_do_not_see_each_others_environment_or_modules(script):
    code = """
import json, os, sys
import collector.vocabulary as shared
print(json.dumps([os.environ.get("MARK"), getattr(shared, "MARK", None), "sched" in sys.modules]), flush=True)
import sched
os.environ["MARK"] = shared.MARK = "left behind"
"""
    first = script(code + "print('ready', flush=True); import time; time.sleep(600)", MARK="first").says()
    assert json.loads(first.read().splitlines()[0]) == ["first", None, False]
    assert script(code).result() == [None, None, False]


def test_a_process_has_its_token_and_a_session_as_soon_as_it_is_known(script):
    for _ in range(20):
        found = script(SLEEP)
        assert os.getsid(found.pid) == os.getpgid(found.pid) == found.pid
        assert list(processes_with_token(found.token)) == [found.pid]


def test_forked_and_executed_children_carry_the_token_and_die_by_it(script, launcher):
    found, other = script(FAMILY).says(), script(SLEEP).says()
    family = sorted(processes_with_token(found.token))
    assert len(family) == 4
    assert found.pid in family
    assert not {launcher.pid, other.pid, os.getpid()} & set(family)
    kill_tokens([found.token])
    wait_until(lambda: all(map(dead, family)))
    assert not dead(other.pid)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [("os._exit(0)", 0), ("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.kill(os.getpid(), 35)", -35)],
)
def test_how_a_process_ended_is_told_and_what_it_printed_is_kept(script, ending, expected):
    found = script(f"import os; print('last words', flush=True); {ending}")
    assert found.code() == expected
    assert found.read() == "last words\n"


#: Starts a program with no environment in a session of its own, by way of a process that ends at once; prints its number.
STRAY = """
import os, subprocess, sys, time
if os.fork() == 0:
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    stray = subprocess.Popen(command, env={}, start_new_session=True)
    print(stray.pid, "ready", flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("ending", ["time.sleep(600)", "os._exit(0)", "os.kill(os.getpid(), 11)"])
def test_a_child_that_gave_up_session_and_environment_dies_too(script, launcher, ending):
    other = script(STRAY + "time.sleep(600)").says()
    beside = int(other.read().split()[0])
    found = script(STRAY + ending).says()
    stray = int(found.read().split()[0])
    if "sleep" in ending:
        assert not dead(stray)
        os.killpg(found.pid, signal.SIGKILL)
    found.code()
    wait_until(lambda: state(stray) == "gone")
    assert not dead(beside)  # it is of a cell that goes on
    assert not dead(other.pid)
    os.killpg(other.pid, signal.SIGKILL)
    other.code()
    wait_until(lambda: state(beside) == "gone")
    assert not launcher.lost


def test_a_process_holds_no_pipe_of_another(script):
    first = script(SLEEP).says()
    script(SLEEP).says()
    os.kill(first.pid, signal.SIGKILL)
    first.code()
    assert first.read() == "ready\n"
    assert os.read(first.output, 1) == b""  # the end; BlockingIOError if anyone still held it


def test_what_keeps_a_process_from_starting_is_in_its_output(script):
    found = script(SLEEP, cores=[100_000])
    assert found.code() == 70
    assert "sched_setaffinity" in found.read()


def test_a_process_is_let_go_of_while_it_runs_or_once_it_has_ended(script, launcher):
    running, ended = script(SLEEP).says(), script("import os; os._exit(3)")
    launcher.reap(running.pid)
    os.kill(running.pid, signal.SIGKILL)
    assert ended.code() == 3
    assert state(ended.pid) == "Z"  # nobody else can have its number meanwhile
    launcher.reap(ended.pid)
    wait_until(lambda: state(running.pid) == state(ended.pid) == "gone")  # no zombie
    assert launcher.exit_code(running.pid) is launcher.exit_code(ended.pid) is None


def test_a_server_has_one_thread_and_only_forked_ones_begin_with_torch(script, launcher, kind):
    assert len(list(Path(f"/proc/{launcher.pid}/task").iterdir())) == 1
    code = "import json, sys; print(json.dumps([name in sys.modules for name in ('torch', 'collector.measure.cell', 'wave')]))"
    assert script(code).result() == [kind == "fork"] * 3
