"""A GPU that torch calls `cuda`: NVIDIA's, and AMD's with a build for ROCm."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from collector.device import GPU
from collector.machine.health import LITTLE_MEMORY
from collector.machine.yardstick import GpuYardstick, IdleProbe
from collector.measure.memory import Peak, peak_of

#: The most entries of the allocator's history: allocations and whatever else it records of one call.
_HISTORY = 100_000


class CudaDevice:
    """The first GPU that this process sees."""

    name = torch_name = GPU
    records_graphs = shows_waits = True
    preloads: tuple[str, ...] = (
        "triton.compiler.compiler",
        "triton.backends.nvidia.compiler",
        "triton.backends.nvidia.driver",
    )

    def is_here(self) -> bool:
        """Return whether torch has a driver and a GPU."""
        return bool(torch.cuda.is_available())

    def synchronize(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize()

    def facts(self) -> dict[str, Any]:
        """Return the GPU's name, memory, compute capability and multiprocessors, and the versions of CUDA, cuDNN and driver."""
        properties = torch.cuda.get_device_properties(0)
        return {
            "gpu": properties.name,
            "gpu_memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": _driver(),
        }

    def uuid(self) -> str | None:
        """Return NVIDIA's name of the GPU, `GPU-...`; None where torch does not know it."""
        uuid = getattr(torch.cuda.get_device_properties(0), "uuid", None)
        return f"GPU-{uuid}" if uuid else None

    def capability(self) -> tuple[int, int] | None:
        """Return the compute capability, or None without a GPU."""
        return torch.cuda.get_device_capability() if torch.cuda.is_available() else None

    def peak_bytes(self, call: Callable[[], Any], resident: Iterable[torch.Tensor], calls: int) -> int:
        """Return `torch.cuda.max_memory_allocated` over the calls; weights and inputs are part of it."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated())

    def peak(self, call: Callable[[], Any]) -> Peak:
        """Make a call and return the allocations that are alive at its peak, from the allocator's history.

        torch documents the underscored functions in "Understanding CUDA Memory Usage". Raise `RuntimeError` if the call
        allocates more often than the history holds.
        """
        history = torch.cuda.memory
        torch.cuda.synchronize()
        before = int(torch.cuda.memory_stats()["requested_bytes.all.current"])
        history._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=_HISTORY, clear_history=True
        )
        try:
            call()
            torch.cuda.synchronize()
            trace = history._snapshot()["device_traces"][torch.cuda.current_device()]
        finally:
            history._record_memory_history(None)
        if len(trace) >= _HISTORY:
            raise RuntimeError(f"the call allocates more than {_HISTORY} times")
        return peak_of(trace, before)

    def allocated(self) -> int:
        """Return the bytes that torch's allocator has handed out."""
        return int(torch.cuda.memory_allocated())

    def reserved(self) -> int:
        """Return the bytes that torch's allocator keeps from other processes; 0 before it has begun."""
        return int(torch.cuda.memory_reserved()) if torch.cuda.is_initialized() else 0

    def most_reserved(self) -> int:
        """Return the most bytes that torch's allocator kept since `forget_peaks`; 0 before it has begun."""
        return int(torch.cuda.max_memory_reserved()) if torch.cuda.is_initialized() else 0

    def forget_peaks(self) -> None:
        """Reset torch's peak memory statistics."""
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()

    def give_back_unused(self) -> None:
        """Empty the allocator's cache."""
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def leave(self) -> None:
        """Destroy the process's context with all of its memory (`cuDevicePrimaryCtxReset` of CUDA's driver API)."""
        if torch.version.cuda and torch.cuda.is_initialized():
            device = ctypes.c_int()
            with suppress(OSError, AttributeError):  # the end of the process does the same
                driver = ctypes.CDLL("libcuda.so.1")
                driver.cuDeviceGet(ctypes.byref(device), 0)
                driver.cuDevicePrimaryCtxReset_v2(device)

    @contextmanager
    def limited(self, limit: Callable[[], int | None]) -> Iterator[None]:
        """Limit torch's allocator to `limit()` bytes in this context (`Device.limited`)."""
        if (size := limit()) is None:
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

    def total_bytes(self) -> int:
        """Return the size of the GPU's memory."""
        return int(torch.cuda.get_device_properties(0).total_memory)

    def is_full(self) -> bool:
        """Return whether the driver has next to no free memory."""
        try:
            return bool(torch.cuda.mem_get_info()[0] < LITTLE_MEMORY)
        except RuntimeError:  # no context could be made: the message of the first error says why
            return False

    def allows_tf32(self) -> bool:
        """Return whether cuBLAS or cuDNN may use TensorFloat-32."""
        return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)

    @contextmanager
    def exact_products(self) -> Iterator[None]:
        """Forbid cuBLAS and cuDNN to use TensorFloat-32 in this context."""
        backends = torch.backends.cuda.matmul, torch.backends.cudnn
        before = [backend.allow_tf32 for backend in backends]
        try:
            for backend in backends:
                backend.allow_tf32 = False
            yield
        finally:
            for backend, allowed in zip(backends, before, strict=True):
                backend.allow_tf32 = allowed

    def idle_probe(self, known_ms: float) -> IdleProbe:
        """Return a probe of matrix products that the GPU's own events time."""
        return IdleProbe(self, torch.cuda.Event, known_ms)

    def yardstick(self) -> GpuYardstick:
        """Return the package's PTX, loaded by the CUDA driver."""
        return GpuYardstick()


def _failed_allocations() -> int:
    return int(torch.cuda.memory_stats().get("num_ooms", 0))


def _driver() -> str | None:
    """Return the GPU driver's version, from /proc if it is there, since nvidia-smi is slow."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return _ask_driver()
    # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build ...": only the version has this form.
    return next((word for word in words if re.fullmatch(r"\d+\.\d+(\.\d+)?", word)), None) or _ask_driver()


def _ask_driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None
