"""How the processes of a cell are found again, whatever group or parent they have moved to."""

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
#: Characters of a token: the prefix and the eight that `tempfile.mkdtemp` appends.
LENGTH = len(PREFIX) + 8
#: What the fork server carries, to be overwritten in each child.
PLACEHOLDER = "-" * LENGTH
#: Seconds at most for which the processes of one token are hunted.
_ENOUGH_S = 3.0
#: Searches in a row that must find none.
_QUIET = 4


def processes_with_token(token: str) -> Iterator[int]:
    """The living processes whose environment carries a cell's token; this process is left out."""
    return _search(token, {os.getpid()})


def _search(token: str, seen: set[int]) -> Iterator[int]:
    """Those among the processes that were not seen before; all that are looked at are added to `seen`."""
    needle = f"{VARIABLE}={token}".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - a path for each would take longer than all else
        if name.isdigit() and int(name) not in seen:
            seen.add(int(name))
            try:
                if needle in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    yield int(name)
            except OSError:
                continue  # it has gone, or belongs to somebody else


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kills every process that carries one of the tokens, those too that keep forking and ending."""
    for token in tokens:
        deadline = time.monotonic() + _ENOUGH_S
        # One that forks and ends all the time slips through a whole search; those that look at new processes only are
        # faster than it. One that hangs in a driver stays in sight however often it is killed, and is seen once.
        seen, quiet = {os.getpid()}, 0
        while quiet < _QUIET and time.monotonic() < deadline:
            quiet = 0 if sum(map(_kill, _search(token, seen))) else quiet + 1


def _kill(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
