"""Search for and end of a cell's processes, whatever session, parent or environment they have given themselves.

Each cell's process is a subreaper (prctl(2)): a process that it starts stays below it, even if a process in between ends. When
the cell's process ends, the kernel gives all its descendants to the next subreaper above, the fork server, before anybody can
see that end. So a child of the server that the server has not started itself belongs to a cell that is over.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

#: Every process of a cell carries its token in this variable of its environment.
VARIABLE = "INDUCTOR_WATCH_CELL"
PREFIX = "inductor-watch-"
#: Characters of a token: the prefix and eight random ones.
LENGTH = len(PREFIX) + 8
#: The value of `VARIABLE` in the fork server, which each child overwrites.
PLACEHOLDER = "-" * LENGTH
#: The most seconds for killing the processes of one token.
_ENOUGH_S = 3.0
#: Searches in a row that must find no process: while a process starts a program, the kernel shows an empty environment for it.
_QUIET = 2


def processes_with_token(token: str) -> Iterator[int]:
    """Yield the living processes with a cell's token in their environment, without this process."""
    needle, own = f"{VARIABLE}={token}".encode(), str(os.getpid())
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path object per process would take most of the time
        if name.isdigit() and name != own:
            with suppress(OSError):  # it has ended, or belongs to another user
                if needle in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    yield int(name)


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kill every process with one of the tokens, and the processes that they start in the meantime."""
    for token in tokens:
        deadline, quiet = time.monotonic() + _ENOUGH_S, 0
        while quiet < _QUIET and time.monotonic() < deadline:
            quiet += 1
            for pid in processes_with_token(token):
                quiet = 0
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


#: The prctl option of a subreaper (linux/prctl.h).
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process the parent of orphans below it from now on. The setting is kept by exec and not inherited by a fork."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> Iterator[int]:
    """Return the children of this process, including zombies."""
    own = os.getpid()
    return (pid for pid, parent, _ in _processes() if parent == own)


def strays(pids: Iterable[int]) -> dict[int, list[int]]:
    """Return for each of these processes its descendants in other groups, which no signal to its group reaches."""
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

    Cells stop and go on hundreds of times in a night, and a host has hundreds of processes, so this reads as little as possible.
    """
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path object per process would take most of the time
        if name.isdigit():
            with suppress(OSError):  # it has ended
                descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    told = os.read(descriptor, 4096)
                finally:
                    os.close(descriptor)
                # The program's name, in brackets, may contain anything: state and parent come after the last bracket.
                _, parent, group = told.rpartition(b")")[2].split(None, 3)[:3]
                yield int(name), int(parent), int(group)


def kill_orphans(kept: Container[int]) -> None:
    """Kill and reap the children of this process except `kept`, and the children that those leave behind in turn."""
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
