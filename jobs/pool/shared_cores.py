"""The cores of the workers of one device. More cells share them than there are workers: a cell that waits needs none."""

from __future__ import annotations

from collections.abc import Sequence

from collector.process.cell_process import CellProcess


class SharedCores:
    """Sets of cores, each for one process at a time. A process that needs no cores now may lose its set to another one."""

    def __init__(self, sets: Sequence[Sequence[int]]) -> None:
        self._sets = len(sets)
        self._free = [list(cores) for cores in sets]
        self._of: dict[CellProcess, list[int]] = {}
        #: The last set of each process, also of a process that has lost it.
        self._last: dict[CellProcess, list[int]] = {}

    def __len__(self) -> int:
        """Return the number of sets."""
        return self._sets

    def next_free(self, running: Sequence[CellProcess]) -> list[int] | None:
        """Return the set that a further process may have beside the running ones; None if these need all sets.

        If no set is free, the process that got its set last among those that do not run loses it.
        """
        if len(running) >= self._sets:
            return None
        if not self._free:
            self._free.append(self._of.pop(next(one for one in reversed(self._of) if one not in running)))
        return self._free[0]

    def take(self, process: CellProcess) -> None:
        """Give the set of `next_free` to a process that has started on it."""
        self._of[process] = self._last[process] = self._free.pop(0)

    def give(self, running: Sequence[CellProcess]) -> None:
        """Give a set to each of these processes, at most as many as there are sets; those that have one keep it."""
        for process in running:
            if process not in self._of:
                others = [one for one in running if one in self._of]
                if (cores := self.next_free(others)) is not None:
                    self.take(process)
                    process.move(cores)

    def take_back(self, process: CellProcess) -> None:
        """Move a process, which was elsewhere, to its last set."""
        process.move(self._last[process])

    def leave(self, process: CellProcess) -> None:
        """Free the set of a process that has ended; a signal may have come before it had one."""
        self._last.pop(process, None)
        if process in self._of:
            self._free.append(self._of.pop(process))
