"""A process is a cell's by the token in its environment, and by nothing that looks like it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collector.process.orphans import PLACEHOLDER, PREFIX, VARIABLE, kill_tokens, processes_with_token
from tests.collector.processes import dead, wait_until

TOKEN = PREFIX + "abcdefgh"


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


def test_the_whole_value_of_the_variable_is_the_token(start):
    mine = {start(VARIABLE, TOKEN), start(VARIABLE, TOKEN, start_new_session=True)}
    for name, value in [(VARIABLE, TOKEN + "i"), (VARIABLE, TOKEN[:-1]), ("X_" + VARIABLE, TOKEN), ("OTHER", TOKEN)]:
        start(name, value)
    assert set(processes_with_token(TOKEN)) == mine


def test_only_the_processes_of_the_tokens_given_are_killed(start):
    first, second = start(VARIABLE, TOKEN), start(VARIABLE, PREFIX + "ijklmnop", start_new_session=True)
    other, placeholder = start(VARIABLE, PREFIX + "qrstuvwx"), start(VARIABLE, PLACEHOLDER)
    kill_tokens([TOKEN, PREFIX + "ijklmnop", PREFIX + "nobodyis", PREFIX])
    wait_until(lambda: dead(first) and dead(second))
    assert not dead(other)
    assert not dead(placeholder)


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
    for _ in range(15):
        with subprocess.Popen([sys.executable, "-S", "-c", BEGINNING], env=environ, stdout=subprocess.PIPE) as first:
            first.stdout.readline()
            kill_tokens([TOKEN])
        try:
            # Who was killed takes a moment to be gone; a program that was overlooked sleeps on.
            wait_until(lambda: not list(processes_with_token(TOKEN)), 2)
        finally:
            kill_tokens([TOKEN])
