"""Known slow-downs, to see which of them a verdict notices: a compiled call with a kernel more, of a stated length.

What is measured this way never enters a metric of the cell; it stands beside them in the details, under `injected`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

Call = Callable[[], Any]

#: Cycles of the kernel by which the length of one is calibrated: about a millisecond.
_PROBE_CYCLES = 2_000_000


def delayed(call: Call, extra_ms: float, device: str) -> Call:
    """`call` followed by `extra_ms` milliseconds of nothing: on a GPU a kernel that spins on the same stream, on a CPU a loop.

    Raises:
        ValueError: a negative delay.
    """
    if extra_ms < 0:
        raise ValueError(f"a slow-down of {extra_ms} ms is none")
    wait = _spinning_kernel(extra_ms) if device == "cuda" else _spinning_loop(extra_ms)

    def slower() -> Any:
        made = call()
        wait()
        return made

    return slower


def _spinning_kernel(extra_ms: float) -> Call:
    cycles = max(1, round(extra_ms * _cycles_per_ms()))
    return lambda: torch.cuda._sleep(cycles)


def _cycles_per_ms() -> float:
    """The pace of the GPU's clock now, after a first launch that loads the kernel."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        begin.record()
        torch.cuda._sleep(_PROBE_CYCLES)
        end.record()
        torch.cuda.synchronize()
    return _PROBE_CYCLES / float(begin.elapsed_time(end))


def _spinning_loop(extra_ms: float) -> Call:
    def spin() -> None:
        until = time.perf_counter() + extra_ms / 1e3
        while time.perf_counter() < until:
            pass

    return spin
