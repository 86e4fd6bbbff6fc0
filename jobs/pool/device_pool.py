"""Runs the schedulers of all devices of a host in one loop, with one deadline and one stream of outcomes."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from typing import Any

from collector.process.cell_process import CellProcess
from collector.process.outcome import Outcome
from jobs.pool.gpu_scheduler import GpuScheduler


class Pool:
    """Runs schedulers side by side; `run` yields (index of the scheduler, outcome) in the order in which they come."""

    def __init__(self, schedulers: Sequence[GpuScheduler], budget_s: float = float("inf")) -> None:
        self._schedulers = list(schedulers)
        self._deadline = time.monotonic() + budget_s

    def run(self) -> Generator[tuple[int, Outcome]]:
        """Measures every cell; after the budget's seconds no new one starts. Closing the iterator ends all processes.

        Raises:
            LauncherError: the processes that start the cells keep dying.
        """
        with ExitStack() as stack:
            for scheduler in self._schedulers:
                stack.callback(scheduler.close)
            if time.monotonic() < self._deadline:
                for scheduler in self._schedulers:
                    scheduler.prepare()
            while any(scheduler.busy for scheduler in self._schedulers):
                for scheduler in self._schedulers:
                    if time.monotonic() > self._deadline:
                        scheduler.give_up()
                    if scheduler.busy:
                        scheduler.start_waiting()
                self._wait()
                for index, scheduler in enumerate(self._schedulers):
                    for outcome in scheduler.turn():
                        yield index, outcome

    def _wait(self) -> None:
        owners: dict[Any, CellProcess] = {
            descriptor: process
            for scheduler in self._schedulers
            for process in scheduler.active
            for descriptor in process.descriptors
        }
        ready = wait(owners, timeout=min(scheduler.soon_s for scheduler in self._schedulers))
        # The pipes of a process that has gone are readable for ever: a short sleep keeps this loop from spinning.
        if len({owners[descriptor] for descriptor in ready}) < len(ready):
            time.sleep(0.002)
