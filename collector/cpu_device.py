"""The host's processor as the device that is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from collector.device import CPU, PlainDevice


class CpuDevice(PlainDevice):
    """The host's processor: calls need no synchronisation, and its memory is the host's."""

    name = torch_name = CPU

    def is_here(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Do nothing: a call has ended when it returns."""

    def facts(self) -> dict[str, Any]:
        """Return an empty dict: each fingerprint has the processor anyway."""
        return {}

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Return the most bytes that torch's allocator held during the calls, by the profiler, plus the resident tensors.

        Return None if the profiler reports no allocation.
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
