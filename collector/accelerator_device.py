"""What torch knows of any accelerator: the answers of a device of which no more is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from collector.device import PlainDevice


class AcceleratorDevice(PlainDevice):
    """The accelerator that `torch.accelerator` finds; what torch does not tell of every one is not known here."""

    name: str
    torch_name: str

    def is_here(self) -> bool:
        """Return whether torch's accelerator is of this kind, and there."""
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found is not None and found.type == self.torch_name

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.accelerator.synchronize()

    def facts(self) -> dict[str, Any]:
        """Return torch's word, for want of a name. Raises `RuntimeError` where there is no such device."""
        if not self.is_here():
            raise RuntimeError(f"torch finds no {self.name} here")
        return {"gpu": self.name}

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Make no call and return None."""
        return None
