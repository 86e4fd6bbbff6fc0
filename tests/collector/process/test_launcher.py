"""Processes that a launcher starts, what they are told, how its server ends, and that a run which dies leaves none behind."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from uuid import uuid4

import pytest

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Launcher, LauncherError, Preload
from collector.process.orphans import PLACEHOLDER, PREFIX, VARIABLE, kill_tokens, processes_with_token
from tests.collector.processes import (
    FAMILY,
    ROOT,
    SLEEP,
    Script,
    children,
    dead,
    serving,
    state,
    wait_until,
    write_hook,
)


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
    code = "import json, os, sys; print(json.dumps(dict(os.environ, LARGE=len(os.environ['LARGE']), WAVE='wave' in sys.modules)))"
    found = script(code, ODD="aé\udcff\n\t\\\"'=", LARGE="x" * 100_000)
    added = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "OPENBLAS_NUM_THREADS": "1", "TORCHINDUCTOR_WORKER_START": "fork"}
    added[SKIP_VARIABLE] = "1"  # what the suite tells the server is kept for what it forks
    assert os.getsid(found.pid) == os.getpgid(found.pid) == found.pid
    told = found.result()
    assert told.pop("WAVE") is (kind == "fork"), "only a forked one begins with what its server has imported"
    assert told == found.given | {"LARGE": 100_000} | (added if kind == "fork" else {})


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


@pytest.mark.parametrize("ending", ["time.sleep(600)", "os.kill(os.getpid(), 11)"])
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


def test_how_a_process_ended_or_failed_to_start_is_told_with_its_output(script):
    for ending, expected in [("os._exit(7)", 7), ("os.kill(os.getpid(), 35)", -35)]:
        found = script(f"import os; print('last words', flush=True); {ending}")
        assert found.code() == expected
        assert found.read() == "last words\n"
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


def test_a_server_ends_with_every_process_of_every_cell_unless_it_is_kept(tmp_path, kind):
    with serving(tmp_path / "hook", kind) as launcher:
        launcher.is_kept = True
        launcher.close()
        assert not launcher.lost
        found = [Script(launcher, FAMILY, tmp_path / "hook").says() for _ in range(2)]
        os.killpg(found[1].pid, signal.SIGSTOP)
        processes = [pid for item in found for pid in processes_with_token(item.token)]
        assert len(processes) == 8
        launcher.is_kept = False
    assert dead(launcher.pid)
    wait_until(lambda: all(map(dead, processes)), 3)


#: What writes to standard error: C++, Python's warnings, and, as Python 3.12 does it, a fork beside threads.
_NOISY = """
import os, warnings

def warn_and_fork(fork=os.fork):
    said = f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may lead to deadlocks in the child."
    warnings.warn(said, DeprecationWarning, stacklevel=2)
    return fork()

os.fork = warn_and_fork
os.write(2, b"a line of a C++ library\\n")
warnings.warn("a hint")
"""


def test_a_server_imports_what_it_is_told_later_and_is_lost_when_killed(tmp_path, capfd):
    with serving(tmp_path / "hook", "fork") as launcher:
        (tmp_path / "hook" / "noisy.py").write_text(_NOISY)
        launcher.import_also(Preload("nowhere", ["colorsys", "noisy"], ["tabnanny:check"]))
        wait_until(lambda: launcher.is_ready)
        code = "import json, sys; print(json.dumps(['colorsys' in sys.modules, 'tabnanny' in sys.modules]))"
        script = Script(launcher, code, tmp_path / "hook")
        assert script.result() == [True, True]
        script.close()
        assert capfd.readouterr().err == ""
        found = [Script(launcher, SLEEP, tmp_path / "hook").says() for _ in range(2)]
        os.killpg(found[1].pid, signal.SIGSTOP)
        assert not launcher.lost
        os.kill(launcher.pid, signal.SIGKILL)
        wait_until(lambda: launcher.lost)
        wait_until(lambda: all(dead(item.pid) for item in found), 3)
        assert launcher.exit_code(found[0].pid) is None
        for _ in range(2):
            with pytest.raises(LauncherError, match="the fork server is gone"):
                Script(launcher, SLEEP, tmp_path / "hook")
        launcher.reap(found[0].pid)  # nobody answers, nobody complains


def test_a_server_that_dies_or_hangs_while_it_starts_is_given_up(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(1)\n")
    launcher = Launcher({**os.environ, "PYTHONPATH": str(tmp_path)})
    wait_until(lambda: launcher.lost)
    assert not launcher.is_ready
    launcher.import_also(Preload("nowhere"))
    launcher.close()
    launcher.import_also(Preload("nowhere"))  # nobody listens, nobody complains
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(600)\n")
    launcher = Launcher({**os.environ, "PYTHONPATH": str(tmp_path)}, timeout_s=0.5)
    assert not launcher.is_ready
    with pytest.raises(LauncherError, match=r"did not answer within 0\.5 s"):
        Script(launcher, SLEEP, tmp_path)
    wait_until(lambda: not launcher.is_ready and launcher.lost)
    launcher.close()
    assert dead(launcher.pid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "wish", "told"), [(0, "", [True, "1", 1]), (1, "", [None, "", 1]), (0, "0", [False, "0", 1])]
)
def test_the_cells_of_a_server_are_told_and_need_no_probe(tmp_path, code, wish, told):
    hook, compiler = write_hook(tmp_path / "hook"), tmp_path / "played-compiler"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo played 1.0 && exit 0\nexit {code}\n')
    compiler.chmod(0o755)
    environ = {**os.environ, "CXX": str(compiler), "PYTHONPATH": f"{hook}:{ROOT}", SKIP_VARIABLE: wish}
    asks = "import json, os, torch._inductor.config as config\n"
    asks += "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as sets\n"
    asks += f"print(json.dumps([config.cpp.vec_isa_ok, os.environ.get({SKIP_VARIABLE!r}), sets.cache_info().currsize]))"
    with closing(Launcher(environ, Preload("cpu", ["preloaded"]))) as launcher:
        wait_until(lambda: launcher.is_ready, 200)
        with closing(Script(launcher, asks, hook)) as script:
            assert script.result() == told


def test_cells_without_cpp_do_not_wait_for_the_probes_of_the_cpu(tmp_path):
    if not pytest.importorskip("torch._inductor.cpu_vec_isa").x86_isa_checker():
        pytest.skip("this torch needs no probe on this processor")
    hook, compiler = write_hook(tmp_path / "hook"), tmp_path / "slow-compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo played 1.0 && exit 0\ncase "$*" in *-fsyntax-only*) exit 1;; esac\n'
        f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 1\n"
    )
    compiler.chmod(0o755)
    # Where the suite says that the CPU is to be trusted, a CPU without AMX needs no compiler.
    environ = {
        **os.environ,
        "CXX": str(compiler),
        "PYTHONPATH": f"{hook}:{ROOT}",
        "HOME": str(tmp_path),
        SKIP_VARIABLE: "",
    }
    asks = "from torch._inductor.cpu_vec_isa import valid_vec_isa_list as sets\nprint(sets.cache_info().currsize)"
    with closing(Launcher(environ, Preload("cpu", ["preloaded"], has_cpp=False))) as launcher:
        wait_until(lambda: launcher.is_ready, 200)
        with closing(Script(launcher, asks, hook)) as script:
            assert script.says("0")
        with closing(Script(launcher, FAMILY, hook)) as script, closing(Script(launcher, STRAY, hook)) as other:
            script.says()
            left = children(script.pid)
            stray = int(other.says().read().split()[0])
            os.kill(script.pid, signal.SIGKILL)
            assert (script.code(), other.code()) == (-9, 0), "no end of a cell waits for the probes"
            assert left
            wait_until(lambda: all(map(dead, left)))
        launcher.import_also(Preload("cpu", has_cpp=True))
        time.sleep(0.3)
        assert not launcher.is_ready
        (tmp_path / "go").touch()
        wait_until(lambda: launcher.is_ready, 60)
        with closing(Script(launcher, asks, hook)) as script:
            assert script.result() == 1, "its processes inherit what was found, and no compiler was killed as an orphan"
        assert dead(stray)  # it had no token


#: A run with four cells: a working one, a stopped one, one with a child that left its session, and one that left a child with
#: nothing of the cell in it.
RUN = """
import os, signal, sys, time
from collector.process.launcher import Launcher, Preload
from tests.collector.process.test_launcher import STRAY
from tests.collector.processes import FAMILY, SLEEP, Script

folder, preloaded = sys.argv[1:]
launcher = Launcher(preload=Preload("nowhere", ["preloaded"]) if preloaded == "fork" else None)
scripts = [Script(launcher, code, folder).says() for code in (SLEEP, SLEEP, FAMILY, STRAY + "time.sleep(600)")]
os.killpg(scripts[1].pid, signal.SIGSTOP)
print(scripts[3].read().split()[0], *(script.token for script in scripts[:3]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("how", "number"), [("spawn", signal.SIGINT), ("fork", signal.SIGKILL)])
def test_nothing_is_left_of_a_run_that_was_killed(tmp_path, how, number):
    environ = {**os.environ, "PYTHONPATH": f"{write_hook(tmp_path / 'hook', torch=False)}:{ROOT}"}
    command = [sys.executable, "-c", RUN, str(tmp_path / "hook"), how]
    tokens = []
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as run:
        try:
            stray, *tokens = run.stdout.readline().split()
            cells = [list(processes_with_token(token)) for token in tokens]
            assert [len(found) for found in cells] == [1, 1, 4]
            wait_until(lambda: state(cells[1][0]) == "T")
            (server,) = children(run.pid)
            run.send_signal(number)
            run.wait()
            wait_until(lambda: dead(server), 5)
            wait_until(lambda: all(dead(pid) for found in cells for pid in found), 5)
            wait_until(lambda: dead(int(stray)), 5)
        finally:
            run.kill()
            kill_tokens(tokens)


#: Another suite on this host has another one.
TOKEN = PREFIX + uuid4().hex[:8]


def test_processes_die_by_their_token_and_by_nothing_like_it():
    command = [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(600)"]
    with ExitStack() as stack:

        def start(name, value, **more):
            environ = {"PATH": os.environ["PATH"], name: value}
            process = stack.enter_context(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, **more))
            stack.callback(process.kill)
            process.stdout.readline()
            return process.pid

        mine = {start(VARIABLE, TOKEN), start(VARIABLE, TOKEN, start_new_session=True)}
        near = [(VARIABLE, TOKEN + "i"), (VARIABLE, TOKEN[:-1]), ("X_" + VARIABLE, TOKEN), ("OTHER", TOKEN)]
        others = [start(name, value) for name, value in [*near, (VARIABLE, PLACEHOLDER)]]
        assert set(processes_with_token(TOKEN)) == mine
        kill_tokens([TOKEN, PREFIX + "nobodyis", PREFIX])
        wait_until(lambda: all(map(dead, mine)))
        assert not any(map(dead, others))


#: Begins a program in children with a session of their own, one after the other.
BEGINNING = """
import os
print(flush=True)
while True:
    if os.fork() == 0:
        os.setsid()
        os.execve('/bin/sleep', ['sleep', '60'], dict(os.environ))
"""


def test_one_that_begins_a_program_is_not_overlooked():
    # While it does, the kernel shows an environment of nothing.
    environ = {"PATH": os.environ["PATH"], VARIABLE: TOKEN}
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-S", "-c", BEGINNING], env=environ, stdout=subprocess.PIPE) as first:
            first.stdout.readline()
            kill_tokens([TOKEN])
        try:
            # Who was killed takes a moment to be gone; a program that was overlooked sleeps on.
            wait_until(lambda: not list(processes_with_token(TOKEN)), 2)
        finally:
            kill_tokens([TOKEN])
