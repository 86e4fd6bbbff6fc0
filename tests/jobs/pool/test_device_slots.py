"""Which GPUs a run gets, and which cores belong to each; this machine has none, so they are invented."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.machine.environment import (
    GPU_VARIABLE,
    GPUS_VARIABLE,
    START_VARIABLE,
    WORKERS_VARIABLE,
)
from collector.machine.host import LENT_CORES_VARIABLE as LENT_VARIABLE
from collector.usage_errors import ConfigError
from jobs.pool import device_slots
from jobs.pool.device_slots import (
    Gpu,
    choose_gpus,
    cores_of_nodes,
    divide_cores,
    list_gpus,
    make_slots,
    most_workers,
    parse_cores,
    parse_gpus,
    quiet_cores,
    visible,
)

GIB = 1 << 30
CORES = sorted(os.sched_getaffinity(0))
A, B, C = (Gpu(number, f"GPU-{letter * 4}-1", 80 * GIB, None) for number, letter in enumerate("abc"))
MINE = [A, B, C]

needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "0, GPU-1-a, 00000000:FF:1F.0, 143771, NVIDIA H200\n3, GPU-2-b, 00000000:FF:1E.0, [N/A], NVIDIA L4\n",
            [Gpu(0, "GPU-1-a", 143771 << 20, None, "NVIDIA H200"), Gpu(3, "GPU-2-b", None, None, "NVIDIA L4")],
        ),
        ("", []),
        ("No devices were found\n", []),
        ("Unable to determine, the device, handle, for\n", []),
    ],
)
def test_what_the_driver_lists_is_read(text, expected):
    assert parse_gpus(text) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (None, MINE),
        ("", []),
        ("-1", []),
        (" 2 , 0 ", [C, A]),
        ("GPU-bbbb", [B]),
        ("GPU-cccc-1,0", [C, A]),
        ("0,-1,2", [A]),
        ("0,9,2", [A]),
        ("0,0", [A]),
        ("GPU-", []),  # the beginning of all is the name of none
        ("MIG-1234", []),
    ],
)
def test_a_variable_says_which_are_visible_as_it_says_to_cuda(wanted, expected):
    assert visible(MINE, wanted) == expected


@pytest.mark.parametrize(
    ("gpus", "requested", "expected"),
    [
        (MINE, None, [A]),
        (MINE, "all", MINE),
        (MINE, "2, 0", [C, A]),
        (MINE, "1,1", [B]),
        ([C, B], None, [C]),
        ([C, B], "1", [B]),  # the driver's numbers, whatever is visible
        ([], None, []),
        ([], "all", []),
        *((MINE, text, "there are 0, 1, 2") for text in ("3", "0,7", "one", "", "0,")),
        ([C, B], "0", "no GPU 0 here, there are 2, 1"),
        ([], "0", "no GPU here"),
    ],
)
def test_gpus_are_chosen_by_number_and_one_that_is_not_there_is_an_error(gpus, requested, expected):
    if isinstance(expected, list):
        assert choose_gpus(gpus, requested) == expected
        return
    with pytest.raises(ConfigError, match=expected) as caught:
        choose_gpus(gpus, requested)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]), ("0", [0]), ("5-5", [5]), ("\n", [])]
)
def test_the_kernels_lists_of_cores(text, expected):
    assert parse_cores(text) == expected


#: Eight cores on two nodes, with hyper-threads next to each other as `make_slots` orders them: n and n + 4.
THREADED = [0, 4, 1, 5, 2, 6, 3, 7]
NODES = {0: [0, 1, 4, 5], 1: [2, 3, 6, 7]}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([None], [THREADED]),
        ([0], [THREADED]),  # alone it has all, and not only its own node's
        ([1, 0], [[2, 6, 3, 7], [0, 4, 1, 5]]),
        ([1, 0, 0, 1], [[2, 6], [0, 4], [1, 5], [3, 7]]),
        ([0, 0], [[0, 4, 1, 5], [2, 6, 3, 7]]),  # more than the node has: divided evenly
        ([0, None, 1], [[0, 4], [1, 5], [2, 6]]),
        ([7, 1], [[0, 4, 1, 5], [2, 6, 3, 7]]),  # a node that the kernel does not list
    ],
)
def test_cores_go_to_the_gpus_of_their_node(nodes, expected):
    assert divide_cores(THREADED, nodes, NODES) == expected
    assert divide_cores([0, 2], [1, 0], NODES) == [[2], [0]]  # only cores that this process may use


@example([1, 2], {1: {0}, 2: {0}}, {0, 1})  # a core that two nodes claim
@given(
    st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=9),
    st.dictionaries(st.integers(0, 2), st.sets(st.integers(0, 40))),
    st.sets(st.integers(0, 40)),
)
def test_every_gpu_has_as_many_cores_as_the_others_and_its_own(nodes, of_node, cores):
    shares = divide_cores(sorted(cores), nodes, {node: sorted(numbers) for node, numbers in of_node.items()})
    assert {len(share) for share in shares} == {len(cores) // len(nodes)}
    given_away = [core for share in shares for core in share]
    assert len(given_away) == len(set(given_away))
    assert set(given_away) <= cores


def test_a_worker_alone_keeps_all_cores_and_a_gpu_a_part_of_its_memory():
    (cpu,) = make_slots([], 1, "fork")
    assert (cpu.cores, cpu.memory_bytes) == ([[]], float("inf"))
    assert cpu.variables == {WORKERS_VARIABLE: "1", START_VARIABLE: "fork"}
    (gpu,) = make_slots([B], 1, "spawn")
    assert gpu.cores == [[]]
    assert 0.8 < gpu.memory_bytes / (80 * GIB) < 1
    named = {"CUDA_VISIBLE_DEVICES": B.uuid, GPU_VARIABLE: "1"}
    assert gpu.variables == {WORKERS_VARIABLE: "1", START_VARIABLE: "spawn", **named}
    (shared,) = make_slots([Gpu(0, "GPU-1", None, None)], 1, "fork")
    assert shared.memory_bytes == float("inf")


@needs_two_cores
def test_workers_and_gpus_have_cores_of_their_own():
    each = len(CORES) // 2
    (slot,) = make_slots([], 2, "fork")
    first, second = make_slots([C, A], 1, "fork")
    for cores in (slot.cores, [*first.cores, *second.cores]):
        assert [len(part) for part in cores] == [each, each]
        assert not set(cores[0]) & set(cores[1])
        assert {core for part in cores for core in part} <= set(CORES)
    assert [one.variables["CUDA_VISIBLE_DEVICES"] for one in (first, second)] == [C.uuid, A.uuid]
    assert [one.variables[GPU_VARIABLE] for one in (first, second)] == ["2", "0"]
    assert [one.variables[GPUS_VARIABLE] for one in (first, second)] == ["2", "2"]


@pytest.mark.parametrize(
    ("gpus", "workers", "said"),
    [
        (0, len(CORES) + 1, f"{len(CORES) + 1} workers need .* there are {len(CORES)}: take fewer --workers"),
        (len(CORES) + 1, 1, f"each of {len(CORES) + 1} GPUs: take fewer --gpus or fewer --workers"),
    ],
)
def test_more_than_there_are_cores_is_one_line(gpus, workers, said):
    with pytest.raises(ConfigError, match=said) as caught:
        make_slots([Gpu(number, f"GPU-{number}", GIB, None) for number in range(gpus)], workers, "fork")
    assert "\n" not in str(caught.value)


def test_the_kernel_lists_the_cores_of_this_machine():
    found = {core for cores in cores_of_nodes().values() for core in cores}
    assert not found or set(CORES) <= found


def play_driver(folder, patch, text, code=0):
    """Puts a program before the driver's that prints `text`."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
    program.chmod(0o755)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


TWO = "0, GPU-aaaa, 00000000:FF:1F.0, 1024, NVIDIA L4\n1, GPU-bbbb, 00000000:FF:1E.0, 1024, NVIDIA L4"


@pytest.mark.parametrize(
    ("text", "code", "variable", "indexes"),
    [(TWO, 0, None, [0, 1]), (TWO, 0, "1", [1]), ("NVIDIA-SMI has failed", 9, None, []), (None, 0, None, [])],
)
def test_the_driver_lists_gpus_and_the_variable_chooses(text, code, variable, indexes, tmp_path, monkeypatch):
    if text is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        play_driver(tmp_path, monkeypatch, text, code)
    assert [gpu.index for gpu in list_gpus({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})] == indexes


#: Sixteen cores as two hyper-threads of eight, in the order of the slots; and sixteen without.
PAIRS = [core for first in range(8) for core in (first, first + 8)]
SINGLE = list(range(16))


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


def test_the_quiet_cores_are_the_last_core_with_all_its_hyper_threads(host):
    host([(first, first + 8) for first in range(8)])
    assert quiet_cores(PAIRS) == [7, 15]
    assert quiet_cores(PAIRS[:-1]) == [7], "the other one is not this GPU's"


@pytest.mark.parametrize(
    ("cores", "free_bytes", "gigabytes", "gpus", "expected"),
    [
        (16, 80 * GIB, 256, 1, 15),
        (6, 80 * GIB, 256, 1, 5),
        (5, 80 * GIB, 256, 1, 2),  # too few to keep one free: two cores a worker
        (2, 80 * GIB, 256, 1, 1),
        (1, 80 * GIB, 256, 1, 1),
        (16, 24 * GIB, 256, 1, 8),
        (16, 1 * GIB, 256, 1, 1),
        (16, 0, 256, 1, 15),  # zero free bytes: the driver does not know
        (16, None, 256, 1, 15),
        (16, 80 * GIB, 16, 1, 8),
        (16, 80 * GIB, 16, 2, 4),  # the host's memory is for all GPUs
        (16, 80 * GIB, 1, 1, 1),
    ],
)
def test_as_many_workers_as_cores_and_memory_allow(cores, free_bytes, gigabytes, gpus, expected, host):
    host(gigabytes=gigabytes)
    assert most_workers(Gpu(0, "GPU-1", free_bytes, None), list(range(cores)), gpus) == expected


def test_a_gpus_workers_have_a_core_each_and_the_last_is_kept_free(host):
    host([(first, first + 8) for first in range(8)], cores=16)
    (slot,) = make_slots([A], None, "fork")
    assert [len(part) for part in slot.cores] == [1] * 14
    assert list(slot.quiet_cores) == [7, 15]
    assert sorted([*(core for part in slot.cores for core in part), *slot.quiet_cores]) == SINGLE
    assert slot.variables[WORKERS_VARIABLE] == "14"
    assert slot.variables[LENT_VARIABLE].split(",") == [str(core) for part in slot.cores for core in part]


def test_several_gpus_have_as_many_workers_each_and_their_own_quiet_core(host):
    host(cores=16)
    small = Gpu(1, "GPU-bbbb-1", 12 * GIB, None)
    first, second = make_slots([A, small], None, "fork")
    assert [len(slot.cores) for slot in (first, second)] == [4, 4], "the one with the least memory decides"
    assert [list(slot.quiet_cores) for slot in (first, second)] == [[7], [15]]
    used = [core for slot in (first, second) for part in (*slot.cores, slot.quiet_cores) for core in part]
    assert len(used) == len(set(used))


@pytest.mark.parametrize(
    ("cores", "workers", "each", "quiet"),
    [
        (16, 1, [[]], []),  # one worker of one GPU keeps all cores
        (16, 3, [5, 5, 5], [15]),
        (16, 15, [1] * 15, [15]),
        (16, 16, [1] * 16, []),  # who asks for all cores gets them
        (5, 2, [2, 2], []),
        (6, 2, [2, 2], [5]),
    ],
)
def test_a_given_number_is_taken_and_a_core_kept_free_if_one_is_left(cores, workers, each, quiet, host):
    host(cores=cores)
    (slot,) = make_slots([A], workers, "fork")
    assert [part and len(part) for part in slot.cores] == each
    assert list(slot.quiet_cores) == quiet


def test_the_hosts_memory_is_the_kernels_word_or_no_limit(tmp_path, monkeypatch):
    assert 1e8 < device_slots._host_bytes() < 1e14
    monkeypatch.setattr(device_slots, "_read", lambda _: "")
    assert device_slots._host_bytes() == float("inf")
