"""The host's processor as the device that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from collector.device import CPU


class CpuDevice:
    """The processor: nothing to wait for, and no memory but the host's."""

    name = torch_name = CPU
    records_graphs = shows_waits = False
    preloads: tuple[str, ...] = ()

    def is_here(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing: a call has ended when it returns."""

    def facts(self) -> dict[str, Any]:
        """Return nothing: each fingerprint has the processor."""
        return {}

    def uuid(self) -> None:
        """Return None: no tool names it."""

    def capability(self) -> None:
        """Return None: flags say what it understands."""

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Return what torch's allocator handed out at most during the calls, from the profiler, plus the resident tensors.

        None if the profiler reports no allocation.
        """
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

    def peak(self, call: Callable[[], Any]) -> None:
        """Return None: torch does not say which line allocated."""

    def allocated(self) -> None:
        """Return None: torch does not count it."""

    def reserved(self) -> int:
        """Return 0: it has no memory of its own."""
        return 0

    def most_reserved(self) -> int:
        """Return 0: it has no memory of its own."""
        return 0

    def forget_peaks(self) -> None:
        """Do nothing: there are none."""

    def give_back_unused(self) -> None:
        """Do nothing: the allocator gives everything back at once."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Return a context without a limit."""
        return nullcontext()

    def total_bytes(self) -> None:
        """Return None: its memory is the host's."""

    def is_full(self) -> bool:
        """Return False: the kernel ends who asks for too much."""
        return False

    def allows_tf32(self) -> bool:
        """Return False: it multiplies as it is told."""
        return False

    def idle_probe(self, known_ms: float) -> None:
        """Return None: its load is read."""

    def yardstick(self) -> None:
        """Return None: the host's own is timed in any case."""
