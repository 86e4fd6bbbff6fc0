"""Instructions that a stretch of code retires, where the machine can count them (Linux perf events, `torch._C`)."""

from __future__ import annotations

from collections.abc import Callable

#: What torch's counter answers where the kernel or the container forbids it: -1 as an unsigned number.
_NONE = 1 << 63


def counted(action: Callable[[], float]) -> tuple[float, int | None]:
    """What `action` returns, and the user-space instructions that this thread retired in it; None where nobody counts.

    Compile workers and other threads are not counted. A process that is stopped meanwhile retires none, and one that is
    disturbed retires no more than its own: so the number repeats where seconds do not.
    """
    try:
        from torch._C import _instruction_counter as counter
    except ImportError:  # not in this build
        return action(), None
    number = counter.start()
    if number < 0:
        return action(), None
    try:
        made = action()
    finally:
        count = int(counter.end(number))
    return made, count if 0 < count < _NONE else None
