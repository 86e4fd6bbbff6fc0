"""The run dies without a word: the fork server sees it and leaves no process of any cell behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from collector.process.orphans import kill_tokens, processes_with_token
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


@pytest.mark.parametrize("kind", ["spawn", "fork"])
@pytest.mark.parametrize("hard", [True, False])
def test_nothing_is_left_of_a_run_that_was_killed(tmp_path, kind, hard):
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
            run.send_signal(signal.SIGKILL if hard else signal.SIGINT)
            run.wait()
            wait_until(lambda: dead(server), 5)
            wait_until(lambda: all(dead(pid) for found in cells for pid in found), 5)
            wait_until(lambda: dead(int(stray)), 5)
        finally:
            run.kill()
            kill_tokens(tokens)
