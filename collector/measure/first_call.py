"""Holds the device while a compiled program's first call runs on it, and not while that call compiles.

A first call is a compilation of seconds or minutes on the CPU and some milliseconds on the device, for each graph in turn.
Dynamo tells when a compilation starts and ends (`torch._dynamo.on_compile_start`), that of a backward pass and of each graph
behind a graph break included. What runs between two compilations uses the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

#: Enters a hold of the device.
Take = Callable[[], AbstractContextManager[None]]

_listeners: list[_FirstCall] = []
_is_registered = False


class _FirstCall:
    """A first call that is under way; it holds the device or compiles."""

    def __init__(self, take: Take) -> None:
        self._take, self._held = take, ExitStack()
        self._holds = False

    def run(self) -> None:
        """Wait for the device, unless this call holds it."""
        if not self._holds:
            self._held.enter_context(self._take())
            self._holds = True

    def compile(self) -> None:
        """Give the device back, if this call holds it."""
        if self._holds:
            self._holds = False
            self._held.close()


def _started(*_: Any) -> None:
    for call in _listeners:
        call.compile()


def _ended(*_: Any) -> None:
    for call in _listeners:
        call.run()


@contextmanager
def held_between_compilations(take: Take) -> Iterator[None]:
    """Enter `take()` for the parts of the calls in this context that run compiled or eager code after a compilation.

    A torch whose Dynamo tells nothing holds the device for no part of them.
    """
    global _is_registered
    import torch._dynamo  # late: it imports half of the standard library, which a server without a compiler need not

    if not _is_registered and hasattr(torch._dynamo, "on_compile_start"):
        torch._dynamo.on_compile_start(_started)
        torch._dynamo.on_compile_end(_ended)
        _is_registered = True
    call = _FirstCall(take)
    _listeners.append(call)
    try:
        yield
    finally:
        _listeners.remove(call)
        call.compile()
