"""Several cells at once on one host: they compile side by side, and stand still while one of them measures.

Measuring is a small part of a cell; most of it is importing and compiling on the CPU. Each worker has cores of its own.
The device belongs to one cell at a time: a cell asks for it to run its model, to let Inductor time candidates (`tune`),
and to measure. For a measurement every other cell's processes are stopped too (SIGSTOP), the device is given a moment
to run dry, and only then is it granted. What a cell stood or waited is taken out of its compile time.

Tuning is what a night with autotuning waits for: one cell holds the device for most of a minute. With `tune_together`
several cells tune at once; Inductor takes the least of a hundred timings of each candidate, which other cells' work
disturbs less than a median, but the choices may differ from those of a quiet device.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Generator, Iterator, Mapping, Sequence

from collector.cores import VARIABLE, share_out
from collector.outcome import Outcome
from collector.process import CellProcess
from collector.settings import Settings
from collector.vocabulary import Cell

#: Seconds between stopping the others and granting a measurement: up to 1,024 launches of theirs may still be queued.
_SETTLE_S = 0.1


class Pool:
    """Measures cells with several workers; `run` yields outcomes in the order in which they come."""

    def __init__(
        self,
        cells: Sequence[Cell],
        settings: Settings,
        workers: int = 1,
        variables: Mapping[str, str] | None = None,
        budget_s: float = float("inf"),
        tune_together: bool = False,
    ) -> None:
        self._waiting = list(reversed(cells))
        self._settings = settings
        self._tune_together = tune_together
        self._deadline = time.monotonic() + budget_s
        self._environ = {**os.environ, **(variables or {})}
        # One worker keeps all cores and is not pinned: there is nobody to keep it away from.
        self._free = share_out(sorted(os.sched_getaffinity(0)), workers) if workers > 1 else [[]]
        self._active: dict[CellProcess, list[int]] = {}
        self._queue: list[CellProcess] = []
        self._holder: CellProcess | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> Generator[Outcome]:
        """Measures every cell; after `budget_s` seconds no new one starts. Closing the iterator ends all processes."""
        try:
            while self._waiting or self._active:
                self._start_waiting()
                self._wait()
                yield from self._turn()
        finally:
            for process in list(self._active):
                self._end(process)
            self._selector.close()

    def _start_waiting(self) -> None:
        if time.monotonic() > self._deadline:
            self._waiting.clear()
        while self._waiting and self._free and not self._measuring():
            cores = self._free.pop(0)
            pinned = {VARIABLE: ",".join(map(str, cores))} if cores else {}
            process = CellProcess(self._waiting.pop(), self._settings, {**self._environ, **pinned})
            self._active[process] = cores
            for descriptor in process.descriptors:
                self._selector.register(descriptor, selectors.EVENT_READ, process)

    def _measuring(self) -> bool:
        # While one measures nothing new starts: a start is work on the very machine that must be still.
        return any(process.stands for process in self._active)

    def _wait(self) -> None:
        ready = self._selector.select(timeout=0.1)
        # The pipes of a process that has gone are readable for ever: a short sleep keeps this loop from spinning.
        if len({id(key.data) for key, _ in ready}) < len(ready):
            time.sleep(0.002)

    def _turn(self) -> Iterator[Outcome]:
        for process in list(self._active):
            process.pump()
            if process.asks == "tune" and self._tune_together:
                process.grant()
            elif process.asks and process not in self._queue and process is not self._holder:
                self._queue.append(process)
            if process.finished:
                yield self._end(process)
        self._hand_over()

    def _hand_over(self) -> None:
        if self._holder is not None and not self._holder.holds:
            self._holder = None
        if self._holder is not None:
            return
        if not self._queue:
            self._resume_all()
            return
        # Measurements go first: they are short and the last thing a cell needs before its place is free again.
        self._queue.sort(key=lambda process: process.asks != "measure")
        self._give(self._queue.pop(0))

    def _give(self, process: CellProcess) -> None:
        others = [other for other in self._active if other is not process]
        if process.asks == "measure":
            for other in others:
                other.stand()
            process.go_on()
            if others:
                time.sleep(_SETTLE_S)
        else:
            self._resume_all()
        self._holder = process
        process.grant()

    def _resume_all(self) -> None:
        for process in self._active:
            process.go_on()

    def _end(self, process: CellProcess) -> Outcome:
        for descriptor in process.descriptors:
            self._selector.unregister(descriptor)
        if process in self._queue:
            self._queue.remove(process)
        outcome = process.close()
        self._free.append(self._active.pop(process))
        if self._holder is process:
            self._holder = None
        return outcome


def worker_variables(workers: int) -> dict[str, str]:
    """The variables under which a probe sees the cores that one worker of such a pool has."""
    if workers <= 1:
        return {}
    return {VARIABLE: ",".join(map(str, share_out(sorted(os.sched_getaffinity(0)), workers)[0]))}
