"""Peak memory of a few calls, and memory that compiled calls keep.

A leak is looked for over the calls that are timed and profiled anyway. Only if the allocated memory has grown over these,
fifty compiled calls without eager ones between them are made to measure it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from collector.machine.health import LITTLE_MEMORY

#: Calls over which a leak is measured.
LEAK_CALLS = 50


def peak_bytes(call: Callable[[], Any], device: str, resident: Iterable[torch.Tensor], calls: int) -> int | None:
    """The most bytes held at once during `calls` calls, weights and inputs included.

    On a GPU this is `torch.cuda.max_memory_allocated`. On a CPU it is what torch's allocator handed out during the calls,
    from the profiler's memory events, plus `resident` (weights); None if the profiler reports no allocation.
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
    if not steps:
        return None
    # Tied weights share a storage and count once.
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in resident}
    return int(sum(storages.values()) + max(accumulate((size for _, size in steps), initial=0)))


def allocated(device: str) -> int | None:
    """Bytes that torch's allocator has handed out on the device; None on a CPU, where torch does not count them."""
    return int(torch.cuda.memory_allocated()) if device == "cuda" else None


def leaked_bytes_per_call(
    call: Callable[[], Any], held: Callable[[str], int | None], device: str, calls: int = LEAK_CALLS
) -> float:
    """Bytes by which `held` grows with each of `calls` calls, after one call that may still set something up."""
    call()
    before = held(device) or 0
    for _ in range(calls):
        call()
    return max(0, (held(device) or 0) - before) / calls


def reserved(device: str) -> int:
    """Return the bytes of device memory that torch's allocator keeps from other processes; 0 on a CPU."""
    return int(torch.cuda.memory_reserved()) if device == "cuda" and torch.cuda.is_initialized() else 0


def most_reserved(device: str) -> int:
    """Return the most that `reserved` was since the last reset of the peaks."""
    return int(torch.cuda.max_memory_reserved()) if device == "cuda" and torch.cuda.is_initialized() else 0


def forget_peaks(device: str) -> None:
    """Let `most_reserved` and `peak_bytes` begin again at what is held now."""
    if device == "cuda" and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def give_back_unused(device: str) -> None:
    """Return to the device what torch's allocator keeps for later, so that other processes can have it."""
    if device == "cuda" and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def free_copies(device: str) -> None:
    """Free what nothing uses any more, cycles of references too, and return its memory to the device.

    A model's step refers to the model, and many models to themselves: without this a reference in float32 stayed until the
    end, on an H100 18 GB of a model with 9 GB of weights.
    """
    gc.collect()
    give_back_unused(device)


@contextmanager
def limited(device: str, limit: Callable[[], int | None]) -> Iterator[None]:
    """Let torch's allocator take no more than `limit()` bytes of device memory in this context, in all; None for no limit.

    Raises `torch.OutOfMemoryError` at the end also where an allocation failed that nobody told of: a library that has no room
    for its workspace takes a slower way, and keeps to it.
    """
    if device != "cuda" or (size := limit()) is None:
        yield
        return
    failed = _failed_allocations()
    torch.cuda.set_per_process_memory_fraction(min(1.0, size / torch.cuda.mem_get_info()[1]))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    if _failed_allocations() > failed:
        raise torch.OutOfMemoryError(f"an allocation failed within the {size / 1e9:.1f} GB that were promised")


def _failed_allocations() -> int:
    return int(torch.cuda.memory_stats().get("num_ooms", 0))


def is_full(device: str) -> bool:
    """Return whether the device has next to no free memory."""
    if device != "cuda":
        return False
    try:
        return bool(torch.cuda.mem_get_info()[0] < LITTLE_MEMORY)
    except RuntimeError:  # no context could be made: the message of the first error says why
        return False
