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

#: What torch 2.8 and later announce as compilations and what is work on the device (`torch._dynamo.callback`).
_ON_THE_DEVICE = frozenset({"CUDAGRAPH_RECORDING", "TRITON_AUTOTUNING"})


class _FirstCall:
    """A first call that is under way; it holds the device or compiles."""

    def __init__(self, take: Take) -> None:
        self._take, self._held = take, ExitStack()
        self._holds = self._is_over = False

    def compilation_ended(self, *said: Any) -> None:
        """Wait for the device, unless this call holds it."""
        if not self._holds and not self._is_over and not _uses_device(said):
            self._held.enter_context(self._take())
            self._holds = True

    def compilation_started(self, *said: Any) -> None:
        """Give the device back, if this call holds it."""
        if not _uses_device(said):
            self._give_back()

    def end(self) -> None:
        """Give the device back and take it no more."""
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._holds:
            self._holds = False
            self._held.close()


def _uses_device(said: tuple[Any, ...]) -> bool:
    """Return whether what torch says (nothing before 2.8) is of work on the device."""
    return any(getattr(getattr(one, "callback_trigger", None), "name", "") in _ON_THE_DEVICE for one in said)


@contextmanager
def held_between_compilations(take: Take) -> Iterator[None]:
    """Enter `take()` for the parts of the calls in this context that run compiled or eager code after a compilation.

    A torch whose Dynamo tells nothing holds the device for no part of them.
    """
    import torch._dynamo  # late: it imports half of the standard library, which a server without a compiler need not

    call = _FirstCall(take)
    if hasattr(torch._dynamo, "on_compile_start"):
        # Each call anew: `torch._dynamo.reset` forgets all that was registered before.
        torch._dynamo.on_compile_start(call.compilation_started)
        torch._dynamo.on_compile_end(call.compilation_ended)
    try:
        yield
    finally:
        call.end()
