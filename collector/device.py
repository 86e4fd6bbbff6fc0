"""The protocol of a device that is measured. Only the module of each device uses torch's functions for that device.

To support another device, write a class with these methods in a module of its own and add a line to `DEVICES`.
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
#: torch's word for the GPUs that nvidia-smi lists and that the census can imitate, and for ROCm's.
GPU = "cuda"
#: Devices that can be measured, with their classes, in order of preference.
DEVICES = {
    GPU: "collector.cuda_device:CudaDevice",
    "xpu": "collector.accelerator_device:XpuDevice",
    "mps": "collector.accelerator_device:MpsDevice",
    CPU: "collector.cpu_device:CpuDevice",
}


def is_accelerator(device: str) -> bool:
    """Return whether a device is separate from the host's processor: any but `cpu`."""
    return device != CPU


class Device(Protocol):
    """A kind of device. Of several devices of this kind the process sees one.

    `name` is the device's word in bundles and options, `torch_name` the word of tensors on it; torch's own devices have one
    word for both. `records_graphs` says whether torch records the device's launches and replays them (cudagraphs), so that an
    optimiser's step counter must be on the device. `shows_waits` says whether `collector.measure.host_time` knows the functions
    of the device's runtime that launch and wait. `preloads` are the modules that code generation for it imports besides those
    for a CPU, if they are installed.
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
        """Return the device's entries in the fingerprint of the environment, by key."""

    def uuid(self) -> str | None:
        """Return the name by which the driver's tools know the device, if it has one."""

    def capability(self) -> tuple[int, int] | None:
        """Return the version of the device's instructions; None where there is no device, or no such version."""

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int | None:
        """Make `calls` calls and return the most bytes held at once, weights and inputs included; None if unknown."""

    def peak(self, call: Callable[[], Any]) -> Peak | None:
        """Make a call and return the allocations alive at its peak; return None, without a call, if torch keeps no history."""

    def allocated(self) -> int | None:
        """Return the bytes that torch's allocator has handed out; None if it does not count them."""

    def reserved(self) -> int:
        """Return the bytes of device memory that torch's allocator keeps from other processes."""

    def most_reserved(self) -> int:
        """Return the largest value of `reserved` since the last `forget_peaks`."""

    def forget_peaks(self) -> None:
        """Reset the peaks of `most_reserved` and `peak_bytes` to the memory that is held now."""

    def give_back_unused(self) -> None:
        """Release the memory that torch's allocator keeps for later, so that other processes can use it."""

    def leave(self) -> None:
        """Free all that this process has on the device. It must not use the device afterwards."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Limit torch's allocator to `limit()` bytes in all within this context; None is no limit.

        Raise `torch.OutOfMemoryError` at the end even if a failed allocation raised no error: a library without room for its
        workspace switches to a slower algorithm, and keeps it.
        """

    def total_bytes(self) -> int | None:
        """Return the size of the device's memory in bytes; None if its memory is the host's, or unknown."""

    def is_full(self) -> bool:
        """Return whether the device has next to no free memory."""

    def allows_tf32(self) -> bool:
        """Return whether products in float32 may be computed with the mantissa of TensorFloat-32."""

    def exact_products(self) -> AbstractContextManager[None]:
        """Compute products in float32 with the full mantissa of float32 in this context."""

    def idle_probe(self, known_ms: float) -> IdleProbe | None:
        """Return the probe that detects other users of the device, or None. `known_ms` is its known time on an idle device."""

    def yardstick(self) -> GpuYardstick | None:
        """Return the fixed work that shows the machine's drift, or None if the device has none.

        Raise `NoYardstickError` if the driver cannot run it.
        """


class PlainDevice:
    """A device with default answers: it counts no memory, takes no limit and has no probe."""

    records_graphs = shows_waits = False
    preloads: tuple[str, ...] = ()

    def uuid(self) -> str | None:
        """Return None: no driver's tool has a name of the device."""
        return None

    def capability(self) -> None:
        """Return None: callers ask for NVIDIA's compute capability."""

    def peak(self, call: Callable[[], Any]) -> None:
        """Return None: torch records no allocations with their lines here."""

    def allocated(self) -> int | None:
        """Return None: torch does not count the memory."""
        return None

    def reserved(self) -> int:
        """Return 0: torch does not count the memory."""
        return 0

    def most_reserved(self) -> int:
        """Return 0: torch does not count the memory."""
        return 0

    def forget_peaks(self) -> None:
        """Do nothing: there are no peaks to reset."""

    def give_back_unused(self) -> None:
        """Do nothing: the allocator is not known to keep memory."""

    def leave(self) -> None:
        """Do nothing: the end of the process frees its memory."""

    def limited(self, limit: Callable[[], int | None]) -> AbstractContextManager[None]:
        """Return a context without a limit."""
        return nullcontext()

    def total_bytes(self) -> int | None:
        """Return None: the size is unknown, or the memory is the host's."""
        return None

    def is_full(self) -> bool:
        """Return False: the free memory is unknown."""
        return False

    def allows_tf32(self) -> bool:
        """Return False: products are computed in the dtype of their inputs."""
        return False

    def exact_products(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()

    def idle_probe(self, known_ms: float) -> None:
        """Return None: the time of a probe on an idle device is unknown."""

    def yardstick(self) -> None:
        """Return None: a GPU's yardstick is PTX, and the host's yardstick is timed in any case."""


def device_here() -> str:
    """Return the default device to measure: the first of `DEVICES` that torch finds here. Imports torch."""
    return next(name for name in DEVICES if device_named(name).is_here())


@functools.cache
def device_named(name: str) -> Device:
    """Return the device with this name in `DEVICES`, which has no index. Imports torch.

    Raises:
        ValueError: `DEVICES` has no such name.
    """
    if name not in DEVICES:
        raise ValueError(f"{name} is no device that can be measured: {', '.join(DEVICES)}")
    module, _, kind = DEVICES[name].partition(":")
    device: Device = getattr(import_module(module), kind)()
    return device
