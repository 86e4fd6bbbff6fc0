"""Few pages are computed at a time; whoever comes meanwhile waits for a turn.

Python computes one thing at a time anyway: eight pages at once are each eight times as slow, and the server holds what all
eight are in the middle of. In turns the first is done when one page takes, the last not later than otherwise, and the memory
is that of a few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Pages that are computed at once: while one reads the database, another computes.
_AT_ONCE = 2
#: So long a page waits at most, in seconds: one that never ends must not stop all others.
_PATIENCE_S = 10.0
_free = threading.BoundedSemaphore(_AT_ONCE)


@contextmanager
def taken() -> Iterator[None]:
    """Waits for a turn, and has it while it lasts."""
    has_turn = _free.acquire(timeout=_PATIENCE_S)
    try:
        yield
    finally:
        if has_turn:
            _free.release()
