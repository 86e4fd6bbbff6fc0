"""From which core a GPU is driven: the quietest of those that stand free, all threads together, and back afterwards."""

from __future__ import annotations

import itertools
import os
import threading

import pytest

from collector.machine import quiet_cores
from collector.machine.environment import FREE_CORES_VARIABLE, _driven_from
from collector.machine.quiet_cores import Cores, _move, loop_s, quietest

OWN = sorted(os.sched_getaffinity(0))
two = pytest.mark.skipif(len(OWN) < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def back():
    """The next test begins on all cores, whatever this one left."""
    yield
    os.sched_setaffinity(0, OWN)


def here() -> int:
    """The core that this thread is kept to."""
    (core,) = os.sched_getaffinity(0)
    return core


class Machine:
    """Loops that take as long as the core that they run on is said to need."""

    def __init__(self, took: dict[int, float]) -> None:
        self.took = took

    def loop(self) -> float:
        return self.took[here()]


@two
@pytest.mark.parametrize("quiet", [0, 1])
def test_the_quietest_core_is_chosen(quiet):
    machine = Machine({OWN[quiet]: 1.0, OWN[1 - quiet]: 1.6})
    cores = Cores(OWN[:2], 1, machine.loop)
    cores.settle()
    assert cores.chosen == [OWN[quiet]]
    assert os.sched_getaffinity(0) == {OWN[quiet]}
    assert cores.found() == {
        "chosen": [OWN[quiet]],
        "slower": 0.3,
        "of": 2,
        "moves": 0,
        "choosing_s": round(cores.spent_s, 3),
    }


@two
def test_it_moves_on_when_the_core_is_disturbed_and_not_before():
    first, second = OWN[:2]
    machine = Machine({first: 1.0, second: 1.02})
    cores = Cores([first, second], 1, machine.loop)
    cores.settle()
    machine.took[first] = 1.05
    cores.look()
    assert (cores.moves, here()) == (0, first)
    machine.took[first] = 1.5
    cores.look()
    assert (cores.moves, here()) == (1, second)
    assert cores.found()["loop_us"] == 1035000.0  # between 1.05, where it stayed, and 1.02, where it went


@two
def test_where_all_is_disturbed_alike_it_stays():
    machine = Machine(dict.fromkeys(OWN[:2], 1.0))
    cores = Cores(OWN[:2], 1, machine.loop)
    cores.settle()
    machine.took = dict.fromkeys(OWN[:2], 2.0)
    for _ in range(40):
        cores.look()
    assert cores.moves == 1


@two
def test_where_it_gets_ever_worse_it_stops_looking_on(monkeypatch):
    monkeypatch.setattr(quiet_cores, "_LIMIT_S", 0.02)
    now, worse = itertools.count(0.0, 0.005), itertools.count(1)
    monkeypatch.setattr(quiet_cores.time, "perf_counter", lambda: next(now))

    def loop() -> float:
        return float(1.1 ** next(worse))

    cores = Cores(OWN[:2], 1, loop)
    cores.settle()
    for _ in range(400):
        cores.look()
    assert 1 <= cores.moves < 10


@two
def test_a_single_disturbed_sweep_counts():
    # The slower core is the fastest in one of its loops: what it was in the worst of them decides.
    first, second = OWN[:2]
    times = {first: iter([0.9, 0.9, 2.0, 2.0]), second: iter([1.0] * 4)}
    cores = Cores([first, second], 1, lambda: next(times[here()]))
    cores.settle()
    assert cores.chosen == [second]


@two
def test_all_threads_go_along_and_come_back(monkeypatch):
    monkeypatch.setenv(FREE_CORES_VARIABLE, ",".join(map(str, OWN)))
    asked, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (asked.set(), done.wait(20)))
    thread.start()
    asked.wait(20)
    task = thread.native_id
    assert task is not None
    try:
        _move([OWN[0]])
        with quietest("cuda") as cores:
            assert len(cores.chosen) == 1
            assert os.sched_getaffinity(0) == os.sched_getaffinity(task) == set(cores.chosen)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(task) == {OWN[0]}
    finally:
        done.set()
        thread.join()
        _move(OWN)


@two
@pytest.mark.parametrize(
    ("device", "free"), [("cpu", OWN), ("cuda", []), ("cuda", OWN[:1])], ids=["a CPU", "not told", "nothing to choose"]
)
def test_it_stays_where_there_is_nothing_to_choose(monkeypatch, device, free):
    monkeypatch.setenv(FREE_CORES_VARIABLE, ",".join(map(str, free)))
    os.sched_setaffinity(0, OWN[:1])
    with quietest(device) as cores:
        cores.look()
        assert os.sched_getaffinity(0) == {OWN[0]}
        assert not cores.chosen
    assert _driven_from(device) == {}


@two
def test_a_core_that_is_gone_costs_the_choice_and_not_the_cell(monkeypatch, capsys):
    monkeypatch.setenv(FREE_CORES_VARIABLE, f"{OWN[0]},{max(OWN) + 4096}")
    os.sched_setaffinity(0, OWN[:1])
    with quietest("cuda") as cores:
        cores.look()
        assert not cores.chosen
        assert os.sched_getaffinity(0) == {OWN[0]}
    assert "not driven from the quietest core" in capsys.readouterr().err


@two
def test_it_is_part_of_the_testbed(monkeypatch):
    monkeypatch.setenv(FREE_CORES_VARIABLE, ",".join(map(str, OWN)))
    os.sched_setaffinity(0, OWN[:1])
    assert _driven_from("cuda") == {"driven_from": "quietest core"}
    assert _driven_from("cpu") == {}


def test_the_loop_takes_a_moment():
    assert 1e-6 < loop_s() < 1
