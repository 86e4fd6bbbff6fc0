"""Ends what a cell leaves behind, whatever session, parent or environment it has given itself.

Each cell's process is a subreaper (prctl(2)): a process that it starts stays below it, even if the one in between ends. When
the cell's process ends, the kernel gives them all to the next subreaper above, the fork server, before anybody can see that
end. So a child of the server that the server has not started itself belongs to a cell that is over.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress

#: The prctl option of a subreaper (linux/prctl.h).
_PR_SET_CHILD_SUBREAPER = 36
#: The most seconds spent on it: a process that hangs in a driver does not die.
_ENOUGH_S = 3.0


def become_subreaper() -> None:
    """Make orphans below this process its own children from now on. A child does not inherit that, a new program keeps it."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> Iterator[int]:
    """Yield the children of this process, zombies among them."""
    own = os.getpid()
    return (pid for pid, parent, _ in _processes() if parent == own)


def strays(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return for each of these processes those below it in other groups, which no signal to its group reaches."""
    below: dict[int, list[tuple[int, int]]] = {}
    for child, parent, group in _processes():
        below.setdefault(parent, []).append((child, group))
    found: dict[int, list[int]] = {}
    for pid in pids:
        found[pid], waiting = [], [pid]
        while waiting:
            for child, group in below.pop(waiting.pop(), ()):
                waiting.append(child)
                if group != pid:
                    found[pid].append(child)
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield the number, parent and group of every process.

    Cells stop and go on hundreds of times in a night, and a host has hundreds of processes: this is as short as it can be.
    """
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path object per process would take longer than all else
        if name.isdigit():
            with suppress(OSError):  # it has ended
                descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    told = os.read(descriptor, 4096)
                finally:
                    os.close(descriptor)
                # The name of the program, in brackets, may hold anything: state and parent come after the last bracket.
                _, parent, group = told.rpartition(b")")[2].split(None, 3)[:3]
                yield int(name), int(parent), int(group)


def kill_orphans(kept: Container[int]) -> None:
    """Kill and reap the children of this process but for `kept`, and what they leave behind in turn."""
    deadline = time.monotonic() + _ENOUGH_S
    while orphans := [pid for pid in children() if pid not in kept]:
        for pid in orphans:
            with suppress(OSError):  # it belongs to another user
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(0.001)
