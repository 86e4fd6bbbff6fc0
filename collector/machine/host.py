"""The host of a measurement: the cores and the memory that a process may use, its load, the GPU's clocks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Core numbers separated by commas; a cell's process gets the variable, and its children inherit it.
CORES_VARIABLE = "INDUCTOR_WATCH_CORES"


def pin_to_cores() -> None:
    """Restrict this process to the cores in `CORES_VARIABLE`, if it is set."""
    if cores := {int(number) for number in os.environ.get(CORES_VARIABLE, "").split(",") if number}:
        os.sched_setaffinity(0, cores)


def spell_cores(cores: Sequence[int]) -> dict[str, str]:
    """Return `CORES_VARIABLE` with these cores, as an environment for `pin_to_cores`; {} for no cores."""
    return {CORES_VARIABLE: ",".join(map(str, cores))} if cores else {}


def share_out(cores: Sequence[int], workers: int) -> list[list[int]]:
    """Divide cores among workers, equally many neighbouring cores each. Remaining cores stay free.

    Raises:
        ValueError: more workers than cores.
    """
    each = len(cores) // workers
    if each == 0:
        raise ValueError(f"{workers} workers need at least {workers} cores, there are {len(cores)}")
    return [list(cores[first * each : (first + 1) * each]) for first in range(workers)]


_ROOT = Path("/")
#: Files of a container's control group: memory limit, memory in use, statistics; of cgroups 2 and of cgroups 1.
_LIMITS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return the bytes of memory that are free or can be freed, within the limit of a container; None if unknown."""
    left = [_kilobytes(root / "proc/meminfo", "MemAvailable:")]
    for limit, used, stat in _LIMITS:
        most, now = _number(root / limit), _number(root / used)
        if most is not None and now is not None:
            # The kernel drops inactive cached files before an allocation fails.
            left.append(max(0, most - now + (_field(root / stat, "inactive_file") or 0)))
    return min((size for size in left if size is not None), default=None)


def _kilobytes(file: Path, name: str) -> int | None:
    found = _field(file, name)
    return None if found is None else found << 10


def _field(file: Path, name: str) -> int | None:
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(words[1]) for words in lines if len(words) > 1 and words[0] == name and words[1].isdigit()), None)


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None  # "max" means no limit


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


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
    """A reader of telemetry of the host and of the GPU with this UUID. Opening it takes tens of milliseconds, a reading a few."""

    def __init__(self, gpu: str | None) -> None:
        self._nvml: Any = None
        if gpu:
            with suppress(Exception):  # no package, no driver, or a driver that does not answer
                import pynvml

                pynvml.nvmlInit()
                self._gpu = pynvml.nvmlDeviceGetHandleByUUID(gpu)
                self._nvml = pynvml

    @property
    def energy_mj(self) -> Callable[[], int] | None:
        """The function that reads the energy that the GPU has used, in millijoules; None if its driver does not count it."""
        if self._nvml is None:
            return None

        def read() -> int:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu))

        with suppress(Exception):  # a GPU before Volta, a part of a GPU (MIG)
            read()
            return read
        return None

    def read(self) -> dict[str, Any]:
        """Return the telemetry now. GPU values that the driver does not report are absent; `processes` includes this one."""
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
    """Return the words for NVML's bits of reasons for lower clocks."""
    return [word for bit, word in CLOCK_REASONS.items() if bits & bit]


def throttled(readings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the reasons for which the GPU was throttled in any of the readings, sorted."""
    return sorted({reason for reading in readings for reason in reading.get("clocks_held_by", ())} & set(THROTTLING))
