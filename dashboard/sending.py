"""What a page shows goes to the browser in few batches: a browser draws the whole page anew for every one that arrives.

Streamlit sends each element when it is made. A page of forty elements that takes the server a tenth of a second is then drawn
a dozen times over, which takes the browser longer than all else. There is no setting for it; where a later Streamlit does not
have what is used here, elements go out one by one again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamlit.runtime.scriptrunner import get_script_run_ctx

#: So long an element waits at most for others, in seconds: what takes longer is shown as it comes. In a tab that has just been
#: opened less, since the browser then begins to load what it draws the elements with.
_WAIT_S, _FIRST_WAIT_S = 0.4, 0.05


class _Batches:
    """Takes the place of what sends one message."""

    def __init__(self, send: Callable[[Any], None], wait_s: float) -> None:
        self._send, self._wait_s = send, wait_s
        self._waiting: list[Any] = []
        self._since = time.monotonic()

    def __call__(self, message: Any) -> None:
        self._waiting.append(message)
        if time.monotonic() - self._since > self._wait_s:
            self.flush()

    def flush(self) -> None:
        """Sends what waits, in its order."""
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._send(message)
        self._since = time.monotonic()


@contextmanager
def together(*, first: bool = False) -> Iterator[None]:
    """While it lasts, what the script shows is sent in batches; at its end, however it ends, what is left."""
    context = get_script_run_ctx()
    send = getattr(context, "_enqueue", None)
    if context is None or not callable(send) or isinstance(send, _Batches):
        yield
        return
    batches = _Batches(send, _FIRST_WAIT_S if first else _WAIT_S)
    context._enqueue = batches
    try:
        yield
    finally:
        # First: where somebody has clicked meanwhile, sending ends this run of the script and begins the next.
        context._enqueue = send
        batches.flush()
