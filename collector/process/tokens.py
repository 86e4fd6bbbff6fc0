"""Finds the processes of a cell by a token in their environment, whatever group or parent they have moved to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

#: Every process of a cell carries its token in this variable of its environment.
VARIABLE = "INDUCTOR_WATCH_CELL"
PREFIX = "inductor-watch-"
#: Characters of a token: the prefix and eight random ones.
LENGTH = len(PREFIX) + 8
#: The value in the fork server, which each child overwrites.
PLACEHOLDER = "-" * LENGTH
#: The most seconds spent on killing the processes of one token.
_ENOUGH_S = 3.0
#: Searches in a row that must find no process: while one starts a program, the kernel shows an empty environment of it.
_QUIET = 2


def processes_with_token(token: str) -> Iterator[int]:
    """The living processes with a cell's token in their environment, without this process."""
    needle, own = f"{VARIABLE}={token}".encode(), str(os.getpid())
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path object per process would take longer than all else
        if name.isdigit() and name != own:
            with suppress(OSError):  # it has ended, or belongs to another user
                if needle in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    yield int(name)


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kills every process with one of the tokens, and what they have started meanwhile."""
    for token in tokens:
        deadline, quiet = time.monotonic() + _ENOUGH_S, 0
        while quiet < _QUIET and time.monotonic() < deadline:
            quiet += 1
            for pid in processes_with_token(token):
                quiet = 0
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
