"""Few pages are computed at a time; whoever comes meanwhile waits for a turn.

Python computes one thing at a time anyway: eight pages at once are each eight times as slow, and the server holds what all
eight are in the middle of. In turns the first is done when one page takes, the last not later than otherwise, and the memory
is that of a few.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: Pages that are computed at once: while one reads the database, another computes.
_AT_ONCE = 2
#: So long a page waits at most, in seconds: one that never ends must not stop all others.
_PATIENCE_S = 10.0
_free = threading.BoundedSemaphore(_AT_ONCE)


class _Asked:
    """How many pages somebody waits for, and since when nobody does."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count, self._since = 0, time.monotonic()

    def add(self, pages: int) -> None:
        """So many more."""
        with self._changed:
            self._count += pages
            self._since = time.monotonic()
            self._changed.notify_all()

    def are_none_for(self, still_s: float, patience_s: float) -> bool:
        """Waits until nobody has waited for so long; false where that did not come while there was patience."""
        end = time.monotonic() + patience_s
        with self._changed:
            while (now := time.monotonic()) < end:
                left = still_s - (now - self._since)
                if self._count == 0 and left <= 0:
                    return True
                self._changed.wait(min(end - now, left) if self._count == 0 else end - now)
        return False


_asked = _Asked()


@contextmanager
def taken() -> Iterator[None]:
    """Waits for a turn, and has it while it lasts."""
    _asked.add(1)
    has_turn = _free.acquire(timeout=_PATIENCE_S)
    try:
        yield
    finally:
        if has_turn:
            _free.release()
        _asked.add(-1)


def quiet(still_s: float, patience_s: float) -> bool:
    """Waits until no page was computed for `still_s` seconds; false if that did not come within `patience_s` seconds."""
    return _asked.are_none_for(still_s, patience_s)
