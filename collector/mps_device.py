"""Apple's GPU, which torch calls `mps`. Written from torch's documentation: no night was ever measured on one."""

from __future__ import annotations

from typing import Any

import torch

from collector.accelerator_device import AcceleratorDevice
from collector.machine.environment import cpu_name


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
