"""Memory that compiled calls keep, and that of what nothing uses any more.

A leak is looked for over the calls that are timed and profiled anyway. Only if the allocated memory has grown over these,
fifty compiled calls without eager ones between them are made to measure it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from collector.device import Device

#: Calls over which a leak is measured.
LEAK_CALLS = 50


def leaked_bytes_per_call(call: Callable[[], Any], held: Callable[[], int | None], calls: int = LEAK_CALLS) -> float:
    """Bytes by which `held` grows with each of `calls` calls, after one call that may still set something up."""
    call()
    before = held() or 0
    for _ in range(calls):
        call()
    return max(0, (held() or 0) - before) / calls


def free_copies(device: Device) -> None:
    """Free what nothing uses any more, cycles of references too, and return its memory to the device.

    A model's step refers to the model, and many models to themselves: without this a reference in float32 stayed until the
    end, on an H100 18 GB of a model with 9 GB of weights.
    """
    gc.collect()
    device.give_back_unused()
