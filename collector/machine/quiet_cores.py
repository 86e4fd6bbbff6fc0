"""Chooses the core that drives a GPU while it is timed: the least disturbed one of the free cores.

A launch-bound latency depends on the core that launches. Where other tenants use the hyper-threads (above all on virtual
machines), a core can be half as fast for seconds at a time, and processes of the same code differ by as much
(docs/measuring.md). While one cell measures, the cores of all other workers of its GPU are free. So the cell times a short
Python loop on each core and moves to the quietest one. It times the loop again before each round of samples and moves when
the core is disturbed. No sample is dropped, and only the loop decides, never a sample.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from collector.machine.environment import FREE_CORES_VARIABLE

#: Sweeps over the cores. The slowest loop of a core counts, so that a chosen core was quiet each time.
_SWEEPS = 2
#: A core is disturbed if the loop takes this factor longer than when it was chosen. A busy hyper-thread costs about half.
_DISTURBED = 1.08
#: The most seconds of a measurement spent on choosing: where all cores are disturbed, more searching does not help.
_LIMIT_S = 0.5
_LOOP = range(6000)
_TASKS = Path("/proc/self/task")

Probe = Callable[[], float]


def loop_s() -> float:
    """Seconds that a fixed loop of Python takes on the core it runs on: about 0.2 ms."""
    start = time.perf_counter()
    value = 1
    for _ in _LOOP:
        value = value * 1103515245 % 4294967291
    return time.perf_counter() - start


class Cores:
    """The free cores of a measurement. All threads of this process stay on as many of them as it had before."""

    def __init__(self, free: Sequence[int], many: int, probe: Probe = loop_s) -> None:
        """`many` is the number of cores of this process."""
        self.free, self.many, self.probe = list(free), many, probe
        self.chosen: list[int] = []
        self.moves = 0
        self.spent_s = 0.0
        self._took: dict[int, float] = {}
        self._looked: list[float] = []
        self._expected = 0.0

    def settle(self) -> None:
        """Times the loop on every free core and moves to the quietest."""
        began = time.perf_counter()
        took = dict.fromkeys(self.free, 0.0)
        for _ in range(_SWEEPS):
            for core in self.free:
                os.sched_setaffinity(0, {core})
                took[core] = max(took[core], self._timed())
        self._took = took
        self.chosen = sorted(sorted(self.free, key=took.__getitem__)[: self.many])
        # This thread may run on any of the chosen cores, so expect the slowest.
        self._expected = max(took[core] for core in self.chosen)
        _move(self.chosen)
        self.spent_s += time.perf_counter() - began

    def look(self) -> None:
        """Moves to another core if this one is more disturbed than when it was chosen. Without a choice it does nothing."""
        if not self.chosen:
            return
        looked = self._timed()
        if self.spent_s < _LIMIT_S and looked > _DISTURBED * self._expected:
            self.moves += 1
            self.settle()
            looked = self._expected
        self._looked.append(looked)

    def found(self) -> dict[str, object]:
        """Details for the measurement: the last choice, how much slower the other cores were, the number of moves."""
        slower = [self._took[core] / self._expected - 1 for core in self.free]
        return {
            "chosen": self.chosen,
            "slower": round(sum(slower) / len(slower), 3),
            "of": len(self.free),
            "moves": self.moves,
            "choosing_s": round(self.spent_s, 3),
            **({"loop_us": round(1e6 * median(self._looked), 1)} if self._looked else {}),
        }

    def _timed(self) -> float:
        # A timer's interrupt disturbs one loop; another tenant of the core disturbs both.
        return min(self.probe(), self.probe())


@contextmanager
def quietest(device: str) -> Iterator[Cores]:
    """Drives a GPU from the quietest free core inside the block. Afterwards every thread is back on its cores.

    Cells of a CPU, and processes that know of no other free cores, stay on their own cores.
    """
    own = sorted(os.sched_getaffinity(0))
    named = os.environ.get(FREE_CORES_VARIABLE, "")
    free = [int(core) for core in named.split(",")] if named else []
    if device != "cuda" or len(free) <= len(own):
        yield Cores([], 0)
        return
    cores = Cores(free, len(own))
    try:
        cores.settle()
    except OSError as error:  # a core has gone offline since the pool started: that must not fail the cell
        sys.stderr.write(f"not driven from the quietest core: {error}\n")
        _move(own)
        yield Cores([], 0)
        return
    try:
        yield cores
    finally:
        _move(own)


def _move(cores: Sequence[int]) -> None:
    # Each thread has an affinity of its own: autograd's threads launch kernels as well.
    for task in _TASKS.iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:  # it ended meanwhile
            continue
