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
#: Searches in a row that must find no process.
_QUIET = 4
#: Seconds for which a process without a visible environment may be starting a program; some never have an environment.
_BEGINS_S = 0.1


def processes_with_token(token: str) -> Iterator[int]:
    """The living processes with a cell's token in their environment, without this process."""
    return _Hunt(token).search()


class _Hunt:
    """Searches for the processes of one token, each time only among processes that no earlier search has read."""

    def __init__(self, token: str) -> None:
        self._needle = f"{VARIABLE}={token}".encode()
        self._seen = {os.getpid()}
        self._begun: dict[int, float] = {}
        #: Whether the last search met a process that is starting another program and may carry the token.
        self.is_open = False

    def search(self) -> Iterator[int]:
        """The processes with the token among those not seen before."""
        self.is_open = False
        for name in os.listdir("/proc"):  # noqa: PTH208 - a Path object per process would take longer than all else
            if name.isdigit() and int(name) not in self._seen:
                try:
                    environ = Path(f"/proc/{name}/environ").read_bytes()
                    if not environ and self._begins(int(name)):
                        self.is_open = True
                        continue
                    if self._needle in environ.split(b"\0"):
                        yield int(name)
                except OSError:
                    pass  # it has ended, or belongs to another user
                self._seen.add(int(name))

    def _begins(self, pid: int) -> bool:
        """Whether a process may be starting another program; until then the kernel shows an empty environment.

        Raises `OSError` for kernel threads, which never have a program.
        """
        Path(f"/proc/{pid}/exe").readlink()
        now = time.monotonic()
        return now - self._begun.setdefault(pid, now) < _BEGINS_S


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kills every process with one of the tokens, also those that keep forking and ending."""
    for token in tokens:
        deadline = time.monotonic() + _ENOUGH_S
        # A process that forks and ends all the time escapes a full search; searches of new processes only are faster.
        hunt, quiet = _Hunt(token), 0
        while quiet < _QUIET and time.monotonic() < deadline:
            killed = sum(map(_kill, hunt.search()))
            quiet = 0 if killed or hunt.is_open else quiet + 1


def _kill(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
