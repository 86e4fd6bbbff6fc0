"""Holds of the device during a compiled program's first call: while it runs on the device, and not while it compiles.

For each graph in turn, a first call compiles for seconds or minutes on the CPU and runs for some milliseconds on the device.
Dynamo calls back when a compilation starts and ends (`torch._dynamo.on_compile_start`), including the compilation of a backward
pass and of each graph after a graph break. Code that runs between two compilations uses the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

#: A function that returns a context which holds the device, or which interrupts a hold.
Take = Callable[[], AbstractContextManager[None]]

#: The triggers that torch 2.8 and later announce as compilations but that are work on the device (`torch._dynamo.callback`).
_ON_THE_DEVICE = frozenset({"CUDAGRAPH_RECORDING", "TRITON_AUTOTUNING"})


class _Parts:
    """A context that is entered for some parts of a call, from one of Dynamo's callbacks to another."""

    def __init__(self, make: Take) -> None:
        self._make, self._entered = make, ExitStack()
        self._is_inside = self._is_over = False

    def enter(self, *said: Any) -> None:
        """Enter the context, unless it is entered already; a callback of work on the device is ignored."""
        if not self._is_inside and not self._is_over and not _uses_device(said):
            self._entered.enter_context(self._make())
            self._is_inside = True

    def leave(self, *said: Any) -> None:
        """Leave the context, if it is entered; a callback of work on the device is ignored."""
        if self._is_inside and not _uses_device(said):
            self._is_inside = False
            self._entered.close()

    def end(self) -> None:
        """Leave the context, and never enter it again."""
        self._is_over = True
        self.leave()


def _uses_device(said: tuple[Any, ...]) -> bool:
    """Return whether the arguments of torch's callback (none before 2.8) announce work on the device."""
    return any(getattr(getattr(one, "callback_trigger", None), "name", "") in _ON_THE_DEVICE for one in said)


@contextmanager
def held_between_compilations(take: Take) -> Iterator[None]:
    """Enter `take()` for the parts of the calls in this context that run compiled or eager code after a compilation.

    With a torch whose Dynamo has no callbacks the device is never held.
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
    """Register callbacks for the start and end of compilations. Register them again after each `torch._dynamo.reset`."""
    import torch._dynamo  # not at the top: it imports many modules, which a server without a compiler does not need

    if hasattr(torch._dynamo, "on_compile_start"):
        torch._dynamo.on_compile_start(started)
        torch._dynamo.on_compile_end(ended)
