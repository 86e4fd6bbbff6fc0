"""Runs the schedulers of all devices of a host in one loop, with one deadline and one stream of outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait
from typing import Any

from collector.process.cell_process import CellProcess
from collector.process.outcome import Outcome
from jobs.pool.gpu_scheduler import GpuScheduler

#: Seconds without an outcome after which a run says what its cells are doing.
_SILENCE_S = 120.0


class Pool:
    """Runs schedulers side by side; `run` yields (index of the scheduler, outcome) in the order in which they come."""

    def __init__(
        self,
        schedulers: Sequence[GpuScheduler],
        budget_s: float = float("inf"),
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._schedulers, self._notice = list(schedulers), notice
        for scheduler in self._schedulers:
            scheduler.notice = notice
        self._deadline = time.monotonic() + budget_s
        self._heard_at = time.monotonic()

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
            try:
                while any(scheduler.busy for scheduler in self._schedulers):
                    yield from self._turn()
            except KeyboardInterrupt:
                self._tell_under_way("under way:")
                raise

    def _turn(self) -> Iterator[tuple[int, Outcome]]:
        for scheduler in self._schedulers:
            if time.monotonic() > self._deadline:
                scheduler.give_up()
            if scheduler.busy:
                scheduler.start_waiting()
        self._wait()
        for index, scheduler in enumerate(self._schedulers):
            for outcome in scheduler.turn():
                self._heard_at = time.monotonic()
                yield index, outcome
        self._break_silence()

    def _tell_under_way(self, head: str) -> None:
        """Tell in a line each what the cells are doing."""
        words = [process.describe() for scheduler in self._schedulers for process in scheduler.active]
        for line in (head, *(f"  {line}" for line in words or ["nothing"])):
            self._notice(line)

    def _break_silence(self) -> None:
        if time.monotonic() - self._heard_at > _SILENCE_S:
            self._heard_at = time.monotonic()
            self._tell_under_way(f"nothing ended for {_SILENCE_S:.0f} s; under way:")

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
