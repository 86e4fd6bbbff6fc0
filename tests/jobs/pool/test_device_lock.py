"""A device is measured on by one run at a time; the second one waits and says for whom. Real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.pool import device_slots
from jobs.pool.device_slots import FOLDER_VARIABLE, HELD_VARIABLE, holder_of, holding_for, holding_slots
from jobs.pool.gpu_scheduler import DeviceSlot

ROOT = Path(__file__).parents[3]
CPU, GPU = DeviceSlot([[]]), DeviceSlot([[]], {"CUDA_VISIBLE_DEVICES": "GPU-5e1d0cf9"})
#: Holds the processor until a line comes, and says when that begins. An interrupt ends it as it ends the command line.
HOLD = """
import sys
from jobs.pool.device_slots import holding_for
try:
    with holding_for("cpu", None):
        print("holds", flush=True)
        sys.stdin.readline()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


@contextmanager
def another(**environ):
    """Another run; it holds the processor unless it has to wait."""
    mine = {name: value for name, value in os.environ.items() if name != HELD_VARIABLE}
    command, variables = [sys.executable, "-c", HOLD], {**mine, "PYTHONPATH": str(ROOT), **environ}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=variables, text=True, **pipes) as run:
        try:
            yield run
        finally:
            run.kill()


def test_a_second_run_waits_and_goes_on_once_the_first_was_killed():
    with another() as first:
        assert first.stdout.readline() == "holds\n"
        with another() as second:
            said = second.stderr.readline()
            expected = rf"this host's processor is measured on by process {first.pid} \(.*\) since \d{{4}}-.*: waiting"
            assert re.match(expected, said), said
            first.kill()
            ended = time.monotonic()
            assert second.stdout.readline() == "holds\n"
            assert time.monotonic() - ended < 5
            assert holder_of("cpu").pid == second.pid


def test_a_child_uses_what_its_parent_holds():
    with holding_slots([GPU]), another() as other:
        assert other.stdout.readline() == "holds\n", "devices do not wait for each other"
    with holding_slots([CPU, GPU]):
        with holding_for("cpu", None), another(**{HELD_VARIABLE: os.environ[HELD_VARIABLE]}) as child:
            assert child.stdout.readline() == "holds\n"
        assert holder_of("cpu").pid == os.getpid()
    assert HELD_VARIABLE not in os.environ
    assert holder_of("cpu") is holder_of("GPU-5e1d0cf9") is None


@pytest.mark.parametrize("trick", [os.symlink, os.link, lambda _, lock: os.mkfifo(lock)], ids=["link", "name", "fifo"])
def test_nothing_is_written_through_a_trick(folder, trick):
    victim, lock = folder / "victim", folder / "inductor-watch-cpu.lock"
    victim.write_text("mine")
    trick(victim, lock)
    with holding_for("cpu", None), another() as second:
        assert "waiting" in second.stderr.readline()  # in a folder of this user's own
        second.send_signal(signal.SIGINT)
        assert second.wait(10) == 130, "a wait can be interrupted"
    assert victim.read_text() == "mine"


def test_a_lock_that_was_removed_while_it_was_waited_for_is_made_again(folder):
    with another() as first:
        assert first.stdout.readline() == "holds\n"
        with another() as second:
            second.stderr.readline()
            (folder / "inductor-watch-cpu.lock").unlink()
            assert second.stdout.readline() == "holds\n"
            first.kill()
            first.wait()
            assert holder_of("cpu").pid == second.pid


def test_where_no_lock_can_be_made_the_run_goes_on_with_a_warning(folder, monkeypatch, capsys):
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder / "nowhere"))
    with holding_for("cpu", None):
        assert "another run at once would spoil the times" in capsys.readouterr().err
    assert device_slots._held == {}
