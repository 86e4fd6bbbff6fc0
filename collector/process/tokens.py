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
#: Seconds for which a process that shows no environment may be beginning a program; some have none at all.
_BEGINS_S = 0.1


def processes_with_token(token: str) -> Iterator[int]:
    """The living processes whose environment carries a cell's token; this process is left out."""
    return _Hunt(token).search()


class _Hunt:
    """Searches for the processes of one token: each looks at those only that have not shown yet what they carry."""

    def __init__(self, token: str) -> None:
        self._needle = f"{VARIABLE}={token}".encode()
        self._seen = {os.getpid()}
        self._begun: dict[int, float] = {}
        #: Whether the last search met one that is about to begin another program and may carry the token.
        self.is_open = False

    def search(self) -> Iterator[int]:
        """Those that carry the token among the processes that were not seen before."""
        self.is_open = False
        for name in os.listdir("/proc"):  # noqa: PTH208 - a path for each would take longer than all else
            if name.isdigit() and int(name) not in self._seen:
                try:
                    environ = Path(f"/proc/{name}/environ").read_bytes()
                    if not environ and self._begins(int(name)):
                        self.is_open = True
                        continue
                    if self._needle in environ.split(b"\0"):
                        yield int(name)
                except OSError:
                    pass  # it has gone, or belongs to somebody else
                self._seen.add(int(name))

    def _begins(self, pid: int) -> bool:
        """Whether it may be about to begin another program, until which the kernel shows an environment of nothing.

        Its own threads, which never show one, have no program. Raises `OSError` for them.
        """
        Path(f"/proc/{pid}/exe").readlink()
        now = time.monotonic()
        return now - self._begun.setdefault(pid, now) < _BEGINS_S


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kills every process that carries one of the tokens, those too that keep forking and ending."""
    for token in tokens:
        deadline = time.monotonic() + _ENOUGH_S
        # One that forks and ends all the time slips through a whole search; those that look at new processes only are
        # faster than it. One that hangs in a driver stays in sight however often it is killed, and is seen once.
        hunt, quiet = _Hunt(token), 0
        while quiet < _QUIET and time.monotonic() < deadline:
            killed = sum(map(_kill, hunt.search()))
            quiet = 0 if killed or hunt.is_open else quiet + 1


def _kill(pid: int) -> bool:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
