"""CPU time of a session: all of its processes, those that ended too, and none of others."""

from __future__ import annotations

import subprocess
import sys

import pytest

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
#: Times come in ticks of a hundredth of a second, rounded down for each process.
ASK = "from collector.measure.cpu_time import session_cpu_s; print(session_cpu_s())"


def asked(code, start_new_session=True):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, start_new_session=start_new_session
    )
    return float(done.stdout)


@pytest.fixture
def burner():
    """A process of another session that burns time meanwhile."""
    command = [sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_the_time_of_another_session_is_not_in_it(burner):
    assert 0 <= asked(ASK) < 0.35  # what Python takes to start


def test_its_own_time_is(burner):
    assert 0.47 <= asked(BURN.format(seconds=0.5) + ASK) < 0.9


def test_that_of_a_child_that_ended_and_of_one_that_lives_is_too():
    code = f"""
import subprocess, sys
burn = [sys.executable, "-S", "-c", {(BURN.format(seconds=0.4) + "print(flush=True); input()")!r}]
for ends in (True, False):
    child = subprocess.Popen(burn, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    if ends:
        child.communicate("go")
{ASK}
child.communicate("go")
"""
    assert 0.75 <= asked(code) < 1.4


def test_a_child_that_left_the_session_is_not_counted():
    code = f"""
import subprocess, sys
burn = [sys.executable, "-S", "-c", {(BURN.format(seconds=0.6) + "print(flush=True); input()")!r}]
child = subprocess.Popen(burn, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
child.stdout.readline()
{ASK}
child.communicate("go")
"""
    assert asked(code) < 0.45


def test_a_name_with_spaces_and_parentheses_does_not_confuse_it():
    # The second field of /proc/PID/stat is the process's name, which may hold anything.
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b') S 1 2 (', 0, 0, 0)\n"
    assert asked(rename + BURN.format(seconds=0.3) + ASK) >= 0.27
