"""What the machine was doing when something was measured: clocks, heat, power and company of the GPU, load of the host.

The GPU is asked through the driver's own library (libnvidia-ml), which needs no package. What it does not tell is absent.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

#: NVML's numbers: nvmlClockType_t, nvmlTemperatureSensors_t (nvml.h).
_SM_CLOCK, _MEMORY_CLOCK, _GPU_SENSOR = 1, 2, 0
#: Why clocks are lower than they could be: nvmlClocksEventReasons (nvml.h).
_REASONS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
}
#: Those that mean that the GPU was held back.
THROTTLING = frozenset({"power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake"})


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, of which only the number is read."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Watcher:
    """Reads the surroundings; opening it takes tens of milliseconds, a reading a few."""

    def __init__(self, device: str, library: Any = None) -> None:
        self._nvml: Any = None
        self._gpu = ctypes.c_void_p()
        if device == "cuda":
            with suppress(OSError, AttributeError, RuntimeError):
                self._open(library or ctypes.CDLL("libnvidia-ml.so.1"), _uuid())

    def _open(self, library: Any, uuid: bytes) -> None:
        if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(self._gpu)) == 0:
            self._nvml = library

    def read(self) -> dict[str, Any]:
        """What is known now: `load1` of the host; `sm_mhz`, `memory_mhz`, `temperature_c`, `power_w`, `clocks_held_by`
        (reasons) and `processes` (that use the GPU, this one among them) where there is a GPU that tells."""
        found: dict[str, Any] = {"load1": round(os.getloadavg()[0], 2)}
        if self._nvml is None:
            return found
        numbers = {
            "sm_mhz": self._number(ctypes.c_uint, "nvmlDeviceGetClockInfo", _SM_CLOCK),
            "memory_mhz": self._number(ctypes.c_uint, "nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            "temperature_c": self._number(ctypes.c_uint, "nvmlDeviceGetTemperature", _GPU_SENSOR),
            "power_w": self._number(ctypes.c_uint, "nvmlDeviceGetPowerUsage"),
            "clocks_held_by": self._number(ctypes.c_ulonglong, "nvmlDeviceGetCurrentClocksThrottleReasons"),
            "processes": self._processes(),
        }
        told: dict[str, Callable[[int], Any]] = {"power_w": lambda mw: mw / 1000, "clocks_held_by": _reasons}
        return found | {name: told.get(name, int)(value) for name, value in numbers.items() if value is not None}

    def _number(self, kind: Any, function: str, *args: int) -> int | None:
        value = kind()
        ask = getattr(self._nvml, function, None)
        return int(value.value) if ask and ask(self._gpu, *args, ctypes.byref(value)) == 0 else None

    def _processes(self) -> int | None:
        count, rows = ctypes.c_uint(64), (_Process * 64)()
        ask = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        return int(count.value) if ask and ask(self._gpu, ctypes.byref(count), rows) == 0 else None


def throttled(readings: list[dict[str, Any]]) -> list[str]:
    """The reasons for which the GPU was held back in any of the readings."""
    return sorted({reason for reading in readings for reason in reading.get("clocks_held_by", ())} & THROTTLING)


def _reasons(bits: int) -> list[str]:
    return [name for bit, name in _REASONS.items() if bits & bit]


def _uuid() -> bytes:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
