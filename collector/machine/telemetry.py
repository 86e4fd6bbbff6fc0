"""Telemetry of a measurement: the host's load and, through NVML (nvidia-ml-py), the GPU's clocks, power and processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

#: Why clocks are lower than they could be: bits of NVML's nvmlClocksEventReasons (nvml.h) and our words for them.
CLOCK_REASONS = {
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
#: The reasons that mean that the GPU was throttled.
THROTTLING = ("power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")


class Watcher:
    """Reads telemetry of the host and of the GPU with this UUID. Opening it takes tens of milliseconds, a reading a few."""

    def __init__(self, gpu: str | None) -> None:
        self._nvml: Any = None
        if gpu:
            with suppress(Exception):  # no package, no driver, or a driver that does not answer
                import pynvml

                pynvml.nvmlInit()
                self._gpu = pynvml.nvmlDeviceGetHandleByUUID(gpu)
                self._nvml = pynvml

    def read(self) -> dict[str, Any]:
        """The telemetry now. Values of the GPU that the driver does not tell are absent; `processes` counts this one."""
        reading: dict[str, Any] = {"load1": round(os.getloadavg()[0], 2)}
        if self._nvml is not None:
            for name, ask in _questions(self._nvml, self._gpu).items():
                with suppress(Exception):
                    reading[name] = ask()
        return reading


def _questions(nvml: Any, gpu: Any) -> dict[str, Callable[[], Any]]:
    return {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "clocks_held_by": lambda: reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    }


def reasons(bits: int) -> list[str]:
    """NVML's reasons for lower clocks in words."""
    return [word for bit, word in CLOCK_REASONS.items() if bits & bit]


def throttled(readings: Iterable[Mapping[str, Any]]) -> list[str]:
    """The reasons for which the GPU was throttled in any of the readings."""
    return sorted({reason for reading in readings for reason in reading.get("clocks_held_by", ())} & set(THROTTLING))
