"""How the processes of a cell are found again, whatever group or parent they have moved to."""

from __future__ import annotations

import os
import signal
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


def processes_with_token(token: str) -> Iterator[int]:
    """The living processes whose environment carries a cell's token; this process is left out."""
    needle = f"{VARIABLE}={token}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue  # it has gone, or belongs to somebody else


def kill_tokens(tokens: Iterable[str]) -> None:
    """Kills every process that carries one of the tokens."""
    for token in tokens:
        # A child that is forking while it is looked for can slip through once, hardly ever twice.
        for _ in range(3):
            strays = list(processes_with_token(token))
            for pid in strays:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not strays:
                break
