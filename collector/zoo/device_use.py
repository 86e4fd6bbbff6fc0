"""Tells when the building of a model begins to use the device. Imports no torch.

Most models are built on the CPU, for seconds, and moved afterwards. Until then the device is free for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[], None]] = []


def begin_device_use() -> None:
    """Tell that what follows uses the device. A builder calls this before it does."""
    for listener in _listeners:
        listener()


@contextmanager
def before_device_use(listener: Callable[[], None]) -> Iterator[None]:
    """Call `listener` each time that a builder begins to use the device in this context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
