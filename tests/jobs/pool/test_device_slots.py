"""What a run measures on: which GPUs and cores, of invented hosts, and one run at a time, of real processes."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from collector.machine.environment import WORKERS_VARIABLE
from jobs.pool import device_slots
from jobs.pool.gpu_scheduler import DeviceSlot
from tests.command_line import ROOT

GIB = 1 << 30
CORES = sorted(os.sched_getaffinity(0))
ONE = device_slots.Gpu(0, "GPU-aaaa-1", 80 * GIB, None)

#: Eight cores on two nodes, with hyper-threads next to each other as `make_slots` orders them: n and n + 4.
THREADED = [0, 4, 1, 5, 2, 6, 3, 7]
NODES = {0: [0, 1, 4, 5], 1: [2, 3, 6, 7]}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([0], [THREADED]),  # alone it has all, and not only its own node's
        ([1, 0, 0, 1], [[2, 6], [0, 4], [1, 5], [3, 7]]),
        ([0, 0], [[0, 4, 1, 5], [2, 6, 3, 7]]),  # more than the node has: divided evenly
        ([0, None, 1], [[0, 4], [1, 5], [2, 6]]),
    ],
)
def test_cores_go_to_the_gpus_of_their_node(nodes, expected):
    assert device_slots.divide_cores(THREADED, nodes, NODES) == expected
    assert device_slots.divide_cores([0, 2], [1, 0], NODES) == [[2], [0]]  # only cores that this process may use


def play_driver(folder, patch, text, code=0):
    """Puts a program before the driver's that prints `text`."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


TWO = "0, GPU-aaaa, 00000000:FF:1F.0, 1024, NVIDIA L4\n1, GPU-bbbb, 00000000:FF:1E.0, 1024, NVIDIA L4"


@pytest.mark.parametrize(
    ("text", "code", "variable", "indexes"),
    [
        (TWO, 0, None, [0, 1]),
        (TWO, 0, "", []),
        (TWO, 0, "GPU-bbbb, 0 ", [1, 0]),
        (TWO, 0, "0,-1,1", [0]),
        (TWO, 0, "GPU-", []),  # the beginning of all is the name of none
        ("NVIDIA-SMI has failed", 9, None, []),
        (None, 0, None, []),
    ],
)
def test_the_driver_lists_gpus_and_the_variable_chooses(text, code, variable, indexes, tmp_path, monkeypatch):
    if text is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        play_driver(tmp_path, monkeypatch, text, code)
    assert [
        gpu.index for gpu in device_slots.list_gpus({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})
    ] == indexes


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Invents a host: its cores' hyper-threads, and its memory in GB."""

    def invent(siblings=(), gigabytes=256, cores=None):
        monkeypatch.setattr(device_slots, "_CPUS", tmp_path / "cpus")
        monkeypatch.setattr(device_slots, "_host_bytes", lambda: gigabytes * 1e9)
        monkeypatch.setattr(device_slots, "cores_of_nodes", dict)
        for pair in siblings:
            for core in pair:
                file = tmp_path / "cpus" / f"cpu{core}" / "topology" / "thread_siblings_list"
                file.parent.mkdir(parents=True)
                file.write_text(",".join(map(str, pair)))
        if cores is not None:
            monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    return invent


@pytest.mark.parametrize(
    ("cores", "free_bytes", "gigabytes", "gpus", "expected"),
    [
        (16, 80 * GIB, 256, 1, 15),
        (5, 80 * GIB, 256, 1, 2),  # too few to keep one free: two cores a worker
        (1, 80 * GIB, 256, 1, 1),
        (16, 24 * GIB, 256, 1, 8),
        (16, 0, 256, 1, 15),  # zero free bytes: the driver does not know
        (16, 80 * GIB, 16, 2, 4),  # the host's memory is for all GPUs
    ],
)
def test_as_many_workers_as_cores_and_memory_allow(cores, free_bytes, gigabytes, gpus, expected, host):
    host(gigabytes=gigabytes)
    assert (
        device_slots.most_workers(device_slots.Gpu(0, "GPU-1", free_bytes, None), list(range(cores)), gpus) == expected
    )


def test_a_gpus_workers_have_a_core_each_and_the_last_is_kept_free(host):
    host([(first, first + 8) for first in range(8)], cores=16)
    (slot,) = device_slots.make_slots([ONE], None, "fork")
    assert list(slot.quiet_cores) == [7, 15]
    assert sorted(slot.cores) == [[core] for core in range(15) if core != 7]
    assert slot.variables[WORKERS_VARIABLE] == "14"
    assert (slot.extra_cells, slot.places) == (4, 18)


@pytest.mark.parametrize(
    ("gigabytes", "workers", "expected"),
    [(256, None, 5), (256, 6, 2), (256, 16, 0), (34, None, 2), (20, 12, 0), (256, 1, 0)],
)
def test_a_third_more_cells_share_the_cores_if_one_is_kept_free_and_memory_allows(gigabytes, workers, expected, host):
    host(cores=16, gigabytes=gigabytes)
    (slot,) = device_slots.make_slots([ONE], workers, "fork")
    assert slot.extra_cells == expected


@pytest.mark.parametrize(
    ("cores", "workers", "each", "quiet"),
    [
        (16, 1, [[]], []),  # one worker of one GPU keeps all cores
        (16, 3, [5, 5, 5], [15]),
        (16, 16, [1] * 16, []),  # who asks for all cores gets them
        (5, 2, [2, 2], []),
    ],
)
def test_a_given_number_is_taken_and_a_core_kept_free_if_one_is_left(cores, workers, each, quiet, host):
    host(cores=cores)
    (slot,) = device_slots.make_slots([ONE], workers, "fork")
    assert [part and len(part) for part in slot.cores] == each
    assert list(slot.quiet_cores) == quiet


def test_whoever_hands_out_the_device_leaves_its_quiet_cores_alone():
    with device_slots.off_quiet_cores([DeviceSlot([CORES[:1]], quiet_cores=CORES[-1:])]):
        assert os.sched_getaffinity(0) == set(CORES[:-1] or CORES)
    assert os.sched_getaffinity(0) == set(CORES)
    with device_slots.off_quiet_cores([DeviceSlot([CORES], quiet_cores=CORES)]):
        assert os.sched_getaffinity(0) == set(CORES), "where there is no other it stays"


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
    monkeypatch.setenv(device_slots.FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


@contextmanager
def another(**environ):
    """Another run; it holds the processor unless it has to wait."""
    mine = {name: value for name, value in os.environ.items() if name != device_slots.HELD_VARIABLE}
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
            assert device_slots.holder_of("cpu").pid == second.pid


def test_a_child_uses_what_its_parent_holds():
    with device_slots.holding_slots([GPU]), another() as other:
        assert other.stdout.readline() == "holds\n", "devices do not wait for each other"
    with device_slots.holding_slots([CPU, GPU]):
        with (
            device_slots.holding_for("cpu", None),
            another(**{device_slots.HELD_VARIABLE: os.environ[device_slots.HELD_VARIABLE]}) as child,
        ):
            assert child.stdout.readline() == "holds\n"
        assert device_slots.holder_of("cpu").pid == os.getpid()
    assert device_slots.HELD_VARIABLE not in os.environ
    assert device_slots.holder_of("cpu") is device_slots.holder_of("GPU-5e1d0cf9") is None


@pytest.mark.parametrize("trick", [os.symlink, os.link, lambda _, lock: os.mkfifo(lock)], ids=["link", "name", "fifo"])
def test_nothing_is_written_through_a_trick(folder, trick):
    victim, lock = folder / "victim", folder / "inductor-watch-cpu.lock"
    victim.write_text("mine")
    trick(victim, lock)
    with device_slots.holding_for("cpu", None), another() as second:
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
            assert device_slots.holder_of("cpu").pid == second.pid


def test_where_no_lock_can_be_made_the_run_goes_on_with_a_warning(folder, monkeypatch, capsys):
    monkeypatch.setenv(device_slots.FOLDER_VARIABLE, str(folder / "nowhere"))
    with device_slots.holding_for("cpu", None):
        assert "another run at once would spoil the times" in capsys.readouterr().err
    assert device_slots._held == {}
