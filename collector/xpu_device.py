"""An Intel GPU, which torch calls `xpu`. Written from torch's documentation: no night was ever measured on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from collector.accelerator_device import AcceleratorDevice
from collector.machine.health import LITTLE_MEMORY


class XpuDevice(AcceleratorDevice):
    """The first Intel GPU that this process sees; its allocator counts as CUDA's does."""

    name = torch_name = "xpu"
    preloads = ("triton.compiler.compiler", "triton.backends.intel.compiler", "triton.backends.intel.driver")

    def facts(self) -> dict[str, Any]:
        """Return the GPU's name and size, and the driver's version."""
        found = super().facts()
        properties = torch.xpu.get_device_properties(0)
        found |= {"gpu": properties.name, "gpu_memory_bytes": properties.total_memory}
        driver = getattr(properties, "driver_version", None)
        return found | ({"driver": driver} if driver else {})

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int:
        """Return `torch.xpu.max_memory_allocated` over the calls; weights and inputs are part of it."""
        torch.xpu.synchronize()
        torch.xpu.reset_peak_memory_stats()
        for _ in range(calls):
            call()
        torch.xpu.synchronize()
        return int(torch.xpu.max_memory_allocated())

    def allocated(self) -> int:
        """Return the bytes that torch's allocator has handed out."""
        return int(torch.xpu.memory_allocated())

    def reserved(self) -> int:
        """Return the bytes that torch's allocator keeps; 0 before it has begun."""
        return int(torch.xpu.memory_reserved()) if torch.xpu.is_initialized() else 0

    def most_reserved(self) -> int:
        """Return the most that it kept since `forget_peaks`."""
        return int(torch.xpu.max_memory_reserved()) if torch.xpu.is_initialized() else 0

    def forget_peaks(self) -> None:
        """Reset torch's peaks."""
        if torch.xpu.is_initialized():
            torch.xpu.reset_peak_memory_stats()

    def give_back_unused(self) -> None:
        """Empty the allocator's cache."""
        if torch.xpu.is_initialized():
            torch.xpu.empty_cache()

    def total_bytes(self) -> int:
        """Return the size of the GPU's memory."""
        return int(torch.xpu.get_device_properties(0).total_memory)

    def is_full(self) -> bool:
        """Return whether the driver has next to no free memory; False where it does not tell."""
        try:
            return bool(torch.xpu.mem_get_info()[0] < LITTLE_MEMORY)
        except (AttributeError, RuntimeError):  # some GPUs, and torch before 2.6
            return False
