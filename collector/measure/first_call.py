"""Holds the device while a compiled program's first call runs on it, and not while that call compiles.

A first call is a compilation of seconds or minutes on the CPU and some milliseconds on the device, for each graph in turn.
Dynamo tells when a compilation starts and ends (`torch._dynamo.on_compile_start`), that of a backward pass and of each graph
behind a graph break included. What runs between two compilations uses the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

#: Enters a hold of the device, or what interrupts one.
Take = Callable[[], AbstractContextManager[None]]

#: What torch 2.8 and later announce as compilations and what is work on the device (`torch._dynamo.callback`).
_ON_THE_DEVICE = frozenset({"CUDAGRAPH_RECORDING", "TRITON_AUTOTUNING"})


class _Parts:
    """A context that is entered for some parts of a call, between what torch tells of it."""

    def __init__(self, make: Take) -> None:
        self._make, self._entered = make, ExitStack()
        self._is_inside = self._is_over = False

    def enter(self, *said: Any) -> None:
        """Enter, unless this part is under way."""
        if not self._is_inside and not self._is_over and not _uses_device(said):
            self._entered.enter_context(self._make())
            self._is_inside = True

    def leave(self, *said: Any) -> None:
        """Leave, if this part is under way."""
        if self._is_inside and not _uses_device(said):
            self._is_inside = False
            self._entered.close()

    def end(self) -> None:
        """Leave and enter no more."""
        self._is_over = True
        self.leave()


def _uses_device(said: tuple[Any, ...]) -> bool:
    """Return whether what torch says (nothing before 2.8) is of work on the device."""
    return any(getattr(getattr(one, "callback_trigger", None), "name", "") in _ON_THE_DEVICE for one in said)


@contextmanager
def held_between_compilations(take: Take) -> Iterator[None]:
    """Enter `take()` for the parts of the calls in this context that run compiled or eager code after a compilation.

    A torch whose Dynamo tells nothing holds the device for no part of them.
    """
    parts = _Parts(take)
    _listen(parts.leave, parts.enter)
    try:
        yield
    finally:
        parts.end()


@contextmanager
def released_while_compiling(release: Take) -> Iterator[None]:
    """Enter `release()`, which gives the device back, for the compilations in the calls of this context."""
    parts = _Parts(release)
    _listen(parts.enter, parts.leave)
    try:
        yield
    finally:
        parts.end()


def _listen(started: Callable[..., None], ended: Callable[..., None]) -> None:
    """Have torch tell when compilations start and end. Each call anew: `torch._dynamo.reset` forgets what there was."""
    import torch._dynamo  # late: it imports half of the standard library, which a server without a compiler need not

    if hasattr(torch._dynamo, "on_compile_start"):
        torch._dynamo.on_compile_start(started)
        torch._dynamo.on_compile_end(ended)
