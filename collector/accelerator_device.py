"""Accelerators other than NVIDIA's: a base class over `torch.accelerator`, and Intel's (`xpu`) and Apple's (`mps`) GPUs.

Written from torch's documentation: no night was ever measured on one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from collector.device import PlainDevice
from collector.machine.environment import cpu_name
from collector.machine.health import LITTLE_MEMORY


class AcceleratorDevice(PlainDevice):
    """The accelerator that `torch.accelerator` finds, with the facts that torch reports for every accelerator."""

    name: str
    torch_name: str

    def is_here(self) -> bool:
        """Return whether an accelerator is available and is of this kind."""
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found is not None and found.type == self.torch_name

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.accelerator.synchronize()

    def facts(self) -> dict[str, Any]:
        """Return the kind of the device under `gpu`, since torch has no name of it. Raise `RuntimeError` if it is not here."""
        if not self.is_here():
            raise RuntimeError(f"torch finds no {self.name} here")
        return {"gpu": self.name}

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Make no call and return None."""
        return None


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
        """Return the most bytes that torch's allocator kept since `forget_peaks`; 0 before it has begun."""
        return int(torch.xpu.max_memory_reserved()) if torch.xpu.is_initialized() else 0

    def forget_peaks(self) -> None:
        """Reset torch's peak memory statistics."""
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
        """Return whether the driver has next to no free memory; False where the driver does not report it."""
        try:
            return bool(torch.xpu.mem_get_info()[0] < LITTLE_MEMORY)
        except (AttributeError, RuntimeError):  # some GPUs, and torch before 2.6
            return False


class MpsDevice(AcceleratorDevice):
    """The GPU of an Apple processor, whose memory is the host's; torch counts no peak of it."""

    name = torch_name = "mps"

    def facts(self) -> dict[str, Any]:
        """Return the processor's name, of which the GPU is a part."""
        return super().facts() | {"gpu": f"{cpu_name()} (mps)"}

    def allocated(self) -> int:
        """Return the bytes that torch's tensors take."""
        return int(torch.mps.current_allocated_memory())

    def reserved(self) -> int:
        """Return the bytes that Metal's driver keeps for this process."""
        return int(torch.mps.driver_allocated_memory())

    def give_back_unused(self) -> None:
        """Empty the allocator's cache."""
        torch.mps.empty_cache()
