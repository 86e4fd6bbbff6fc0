"""Memory that a compiled call keeps.

Looked for over the calls that are timed and profiled anyway: if what is allocated has not grown over them, nothing leaks.
Only where it has are fifty compiled calls made for it, without eager ones between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Calls over which a leak is counted, once there is one.
CALLS = 50


def allocated(device: str) -> int | None:
    """Bytes that torch's allocator has handed out on the device; None on a CPU, where it keeps no account."""
    return int(torch.cuda.memory_allocated()) if device == "cuda" else None


def bytes_per_call(
    call: Callable[[], Any], held: Callable[[str], int | None], device: str, calls: int = CALLS
) -> float:
    """Bytes by which what is `held` grows with each of `calls` calls, after one that may still set something up."""
    call()
    before = held(device) or 0
    for _ in range(calls):
        call()
    return max(0, (held(device) or 0) - before) / calls
