"""What torch knows of any accelerator: the answers of a device of which no more is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class AcceleratorDevice:
    """The accelerator that `torch.accelerator` finds; what torch does not tell of every one is not known here."""

    name: str
    torch_name: str
    records_graphs = shows_waits = False
    preloads: tuple[str, ...] = ()

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

    def uuid(self) -> str | None:
        """Return None: no tool is known."""
        return None

    def capability(self) -> None:
        """Return None: what asks for one means NVIDIA's."""

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Make no call and return None."""
        return None

    def peak(self, call: Callable[[], Any]) -> None:
        """Return None: no line is known."""

    def allocated(self) -> int | None:
        """Return None: not counted."""
        return None

    def reserved(self) -> int:
        """Return 0: not counted."""
        return 0

    def most_reserved(self) -> int:
        """Return 0: not counted."""
        return 0

    def forget_peaks(self) -> None:
        """Do nothing: none are counted."""

    def give_back_unused(self) -> None:
        """Do nothing."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Return a context without a limit."""
        return nullcontext()

    def total_bytes(self) -> int | None:
        """Return None: not known."""
        return None

    def is_full(self) -> bool:
        """Return False: not known."""
        return False

    def allows_tf32(self) -> bool:
        """Return False."""
        return False

    def idle_probe(self, known_ms: float) -> None:
        """Return None: how long a probe takes on an idle one was never seen."""

    def yardstick(self) -> None:
        """Return None: the fixed work is PTX."""
