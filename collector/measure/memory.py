"""Peak memory of a few calls: the caching allocator's peak on a GPU, torch's own CPU allocator's on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], Any], device: str, resident: Iterable[torch.Tensor], calls: int) -> int | None:
    """The most memory held at once during `calls` calls, weights and inputs included, in bytes.

    On a GPU: `torch.cuda.max_memory_allocated`. On a CPU: what torch's allocator handed out during the calls, from the
    profiler's memory events, on top of `resident` (weights, inputs); libraries that allocate for themselves are not seen.
    None if the profiler reports no allocation.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as profiler:
        for _ in range(calls):
            call()
    raw = profiler.profiler.kineto_results.events() if profiler.profiler else []
    steps = sorted((event.start_ns(), event.nbytes()) for event in raw if event.name() == "[memory]")
    return unique_bytes(resident) + highest(size for _, size in steps) if steps else None


def highest(changes: Iterable[int]) -> int:
    """The highest point that a running sum of changes reaches, at least 0."""
    now = top = 0
    for change in changes:
        now += change
        top = max(top, now)
    return top


def unique_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the distinct storages behind tensors (tied weights count once)."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())
