"""All lanes of a host in one loop: a lane a device, a shared deadline, one stream of outcomes."""

from __future__ import annotations

import selectors
import time
from collections.abc import Generator, Sequence

from collector.process.outcome import Outcome
from jobs.pool.gpu_scheduler import Lane


class Pool:
    """Runs lanes side by side; `run` yields (index of the lane, outcome) in the order in which they come."""

    def __init__(self, lanes: Sequence[Lane], budget_s: float = float("inf")) -> None:
        self._lanes = list(lanes)
        self._deadline = time.monotonic() + budget_s
        self._selector = selectors.DefaultSelector()

    def run(self) -> Generator[tuple[int, Outcome]]:
        """Measures every cell; after the budget's seconds no new one starts. Closing the iterator ends all processes.

        Raises:
            LauncherError: the processes that start the cells keep dying.
        """
        try:
            if time.monotonic() < self._deadline:
                for lane in self._lanes:
                    lane.prepare()
            while any(lane.busy for lane in self._lanes):
                for lane in self._lanes:
                    if time.monotonic() > self._deadline:
                        lane.give_up()
                    if lane.busy:
                        lane.start_waiting(self._watch)
                self._wait()
                for index, lane in enumerate(self._lanes):
                    for outcome in lane.turn(self._unwatch):
                        yield index, outcome
        finally:
            for lane in self._lanes:
                lane.close(self._unwatch)
            self._selector.close()

    def _watch(self, descriptor: int, owner: object) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, owner)

    def _unwatch(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def _wait(self) -> None:
        ready = self._selector.select(timeout=min(lane.soon_s for lane in self._lanes))
        # The pipes of a process that has gone are readable for ever: a short sleep keeps this loop from spinning.
        if len({id(key.data) for key, _ in ready}) < len(ready):
            time.sleep(0.002)
