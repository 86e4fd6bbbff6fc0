"""A process is a cell's by its token, and by nothing that looks like it; a run that dies leaves none behind."""

import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from collector.process.orphans import PLACEHOLDER, PREFIX, VARIABLE, kill_tokens, processes_with_token
from tests.collector.processes import ROOT, children, dead, state, wait_until, write_hook

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


@pytest.mark.parametrize(("kind", "number"), [("spawn", signal.SIGINT), ("fork", signal.SIGKILL)])
def test_nothing_is_left_of_a_run_that_was_killed(tmp_path, kind, number):
    environ = {**os.environ, "PYTHONPATH": f"{write_hook(tmp_path / 'hook', torch=False)}:{ROOT}"}
    command = [sys.executable, "-c", RUN, str(tmp_path / "hook"), kind]
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


@pytest.fixture
def start():
    """Starts sleeping processes with one variable each; ends them afterwards."""
    started = []

    def begin(name, value, **more):
        environ = {"PATH": os.environ["PATH"], name: value}
        command = [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(600)"]
        started.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, **more))
        started[-1].stdout.readline()
        return started[-1].pid

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_processes_die_by_their_token_and_by_nothing_like_it(start):
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
