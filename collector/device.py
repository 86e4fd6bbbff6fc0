"""The device that is measured: what the stages of a cell ask of it. Only the modules of the devices ask torch.

Another device is a class with these methods in a module of its own, and its line in `DEVICES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from collector.machine.yardstick import GpuYardstick, IdleProbe
    from collector.measure.memory import Peak

#: The host's own processor, whose memory torch does not count and which has nothing to wait for.
CPU = "cpu"
#: The GPUs that nvidia-smi lists and that the census can imagine, in torch's word; ROCm's go by it as well.
GPU = "cuda"
#: What can be measured, with its class; the first one that is there is taken.
DEVICES = {
    GPU: "collector.cuda_device:CudaDevice",
    "xpu": "collector.accelerator_device:XpuDevice",
    "mps": "collector.accelerator_device:MpsDevice",
    CPU: "collector.cpu_device:CpuDevice",
}


def is_accelerator(device: str) -> bool:
    """Return whether a device is apart from the host: with memory and a queue of its own."""
    return device != CPU


class Device(Protocol):
    """A kind of device, in this process; of several the process sees one.

    `name` is its word in bundles and options, `torch_name` that of the tensors on it: the same for all devices of torch's own.
    `records_graphs` says whether torch records its launches and replays them, so that an optimiser's counter must be on it.
    `shows_waits` says whether `collector.measure.host_time` knows the functions of its runtime that launch and wait.
    `preloads` are the modules that its code generation imports besides those of a CPU, if they are there.
    """

    name: str
    torch_name: str
    records_graphs: bool
    shows_waits: bool
    preloads: tuple[str, ...]

    def is_here(self) -> bool:
        """Return whether torch can use such a device in this process."""

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""

    def facts(self) -> dict[str, Any]:
        """Return what a fingerprint of the environment has of the device, by key."""

    def uuid(self) -> str | None:
        """Return the name by which the driver's tools know the device, if it has one."""

    def capability(self) -> tuple[int, int] | None:
        """Return the version of the device's instructions; None where there is no device, or no such version."""

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Return the most bytes held at once during `calls` calls, weights and inputs included; None where that is not known."""

    def peak(self, call: Callable[[], Any]) -> Peak | None:
        """Make a call and return what is alive at its peak; None where no line is known, and no call made."""

    def allocated(self) -> int | None:
        """Return the bytes that torch's allocator has handed out; None where it does not count them."""

    def reserved(self) -> int:
        """Return the bytes of device memory that torch's allocator keeps from other processes."""

    def most_reserved(self) -> int:
        """Return the most that `reserved` was since the last `forget_peaks`."""

    def forget_peaks(self) -> None:
        """Let `most_reserved` and `peak_bytes` begin again at what is held now."""

    def give_back_unused(self) -> None:
        """Return to the device what torch's allocator keeps for later, so that other processes can have it."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Let torch's allocator take no more than `limit()` bytes in this context, in all; None for no limit.

        Raises `torch.OutOfMemoryError` at the end also where an allocation failed that nobody told of: a library that has no
        room for its workspace takes a slower way, and keeps to it.
        """

    def total_bytes(self) -> int | None:
        """Return the size of the device's memory; None where it is the host's."""

    def is_full(self) -> bool:
        """Return whether the device has next to no free memory."""

    def allows_tf32(self) -> bool:
        """Return whether products in float32 may be computed with the mantissa of TensorFloat-32."""

    def exact_products(self) -> AbstractContextManager[None]:
        """Compute products in float32 with all of its mantissa in this context."""

    def idle_probe(self, known_ms: float) -> IdleProbe | None:
        """Return the probe that tells whether others use the device, of which `known_ms` is known; None where there is none."""

    def yardstick(self) -> GpuYardstick | None:
        """Return the fixed work that tells the machine's drift; None where there is none for the device.

        Raises `NoYardstickError` where the driver cannot run it.
        """


class PlainDevice:
    """A device of which torch tells nothing: it counts no memory, takes no limit and is asked for no probe."""

    records_graphs = shows_waits = False
    preloads: tuple[str, ...] = ()

    def uuid(self) -> str | None:
        """Return None: no tool names it."""
        return None

    def capability(self) -> None:
        """Return None: what asks for one means NVIDIA's."""

    def peak(self, call: Callable[[], Any]) -> None:
        """Return None: torch does not say which line allocated."""

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
        """Do nothing: nothing is known to be kept."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Return a context without a limit."""
        return nullcontext()

    def total_bytes(self) -> int | None:
        """Return None: not known, or the host's."""
        return None

    def is_full(self) -> bool:
        """Return False: not known."""
        return False

    def allows_tf32(self) -> bool:
        """Return False: it multiplies as it is told."""
        return False

    def exact_products(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()

    def idle_probe(self, known_ms: float) -> None:
        """Return None: how long a probe takes on an idle one was never seen."""

    def yardstick(self) -> None:
        """Return None: the fixed work of a GPU is PTX, and the host's own is timed in any case."""


def device_here() -> str:
    """Return the device that is measured unless somebody names one: the first that torch finds here. Imports torch."""
    return next(name for name in DEVICES if device_named(name).is_here())


@functools.cache
def device_named(name: str) -> Device:
    """Return a device by torch's name of it, without an index. Imports torch.

    Raises:
        ValueError: nothing is known of such a device.
    """
    if name not in DEVICES:
        raise ValueError(f"{name} is no device that can be measured: {', '.join(DEVICES)}")
    module, _, kind = DEVICES[name].partition(":")
    device: Device = getattr(import_module(module), kind)()
    return device
