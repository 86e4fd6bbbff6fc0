"""The usage of a machine by a run, and the check for measurements that were disturbed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Generic, Self, TypeVar

from collector.machine.yardstick import BUSY, SLOW_HOST
from collector.vocabulary import Cell, Measurement

_HOST_WAS_SLOW = "the host was slow: the eager latency is off from the same model's elsewhere in this run"
#: The largest ratio of two processes' eager runs of one model, and the reason to report beyond it. Device times repeat within
#: 2 %; another process on the GPU doubles them.
_OFF = {
    "eager_kernel_ms": (1.05, "the eager device time is off from the same model's elsewhere in this run"),
    "eager_ms": (SLOW_HOST, _HOST_WAS_SLOW),
}
#: After so many repeats that were slow again, if they are also more than twice as many as the good repeats, no more repeats are
#: made: then it is no cell of this run that slows the host.
_IN_VAIN = 4

#: A call cannot take less time than the device is busy with it. The clock of a GPU drifts by less than this between the two
#: passes: of 805 cells on H100s and H200s four are beyond it, and their probes took 13 to 50 % longer than on an idle GPU.
_BEYOND_LATENCY = 1.02

#: The fields of a cell that the eager form of its model depends on.
Group = tuple[str, str, str, str, int]


Job = TypeVar("Job")


@dataclass
class DisturbanceCheck(Generic[Job]):
    """A check that compares each measurement of a device with the others of the run. A job measures a cell once.

    `idle_ms` is the shortest probe so far (`collector.machine.yardstick`), 0 before the first. `keeps_slow_host`: measurements
    that a slow host alone disturbed are taken as they are.
    """

    keeps_slow_host: bool = False
    idle_ms: float = 0.0
    _fastest: dict[tuple[str, Group], tuple[float, Job]] = field(default_factory=dict)
    _repeated: set[Job] = field(default_factory=set)
    #: Jobs whose measurement is marked for a slow host; the number of good repeats, and of repeats that were slow again.
    _marked: set[Job] = field(default_factory=set)
    _right: int = 0
    _slow_again: int = 0

    def eager_ms(self, cell: Cell) -> float:
        """Return the shortest eager latency of the cell's model so far, in ms; 0 if there was none or it does not matter."""
        fastest = None if self.keeps_slow_host else self._fastest.get(("eager_ms", _group(cell)))
        return fastest[0] if fastest else 0.0

    def may_be_repeated(self, job: Job) -> bool:
        """Return whether a later measurement may show that this job was disturbed: it is compared with the fastest job only."""
        return job not in self._repeated and any(job == fastest for _, fastest in self._fastest.values())

    def is_spared(self, job: Job) -> bool:
        """Return whether a job that is marked for a slow host is not repeated, since repeats do not help here."""
        return job in self._marked and self._slow_again >= max(_IN_VAIN, 2 * self._right + 1)

    def judge(self, measurement: Measurement, job: Job) -> list[Job]:
        """Return the jobs to repeat alone, now that the measurement of `job` is known; each job at most once.

        Mark the measurement: `details["disturbed"]` says what is wrong with it, `details["repeated"]` that it is a
        cell's second one.
        """
        if job in self._repeated:
            measurement.details["repeated"] = "the first measurement was disturbed"
        reason, suspects = "", self._slower_of_two(measurement, job)
        if self._probe_took_long(measurement):
            throttled = measurement.details.get("throttled")
            reason = f"the GPU was held back: {', '.join(throttled)}" if throttled else "the device was not idle"
        elif _device_time_beyond_latency(measurement.metrics):
            reason = "the device was not idle: a device time is longer than the call"
        if reason := reason or suspects.get(job, ""):
            measurement.details["disturbed"] = reason
            suspects = {job: reason}
        self._count(job, reason)
        if self.keeps_slow_host:
            suspects = {one: why for one, why in suspects.items() if why != _HOST_WAS_SLOW}
        again = [one for one in suspects if one not in self._repeated and not self.is_spared(one)]
        self._repeated.update(again)
        return again

    def _count(self, job: Job, reason: str) -> None:
        """Count the result of a repeat, or remember a job that is marked for a slow host."""
        is_slow = reason == _HOST_WAS_SLOW
        if job in self._repeated:
            self._slow_again += is_slow
            self._right += not reason
        elif is_slow:
            self._marked.add(job)

    def _slower_of_two(self, measurement: Measurement, job: Job) -> dict[Job, str]:
        """Return the slower one of this job and the model's fastest, with the reason, if their eager runs are too far apart."""
        suspects = dict[Job, str]()
        if "eager_kernel_ms" not in measurement.metrics:
            return suspects  # a CPU, or no device activity
        group = _group(measurement.cell)
        for metric, (limit, reason) in _OFF.items():
            if (eager_ms := measurement.metrics.get(metric)) is None:
                continue
            fastest_ms, fastest = self._fastest.get((metric, group), (eager_ms, job))
            self._fastest[metric, group] = min((fastest_ms, fastest), (eager_ms, job), key=lambda pair: pair[0])
            if eager_ms > limit * fastest_ms:
                suspects.setdefault(job, reason)
            elif fastest_ms > limit * eager_ms:
                suspects.setdefault(fastest, reason)
        return suspects

    def _probe_took_long(self, measurement: Measurement) -> bool:
        probes = measurement.details.get("idle_probe", {}).values()
        self.idle_ms = min([*probes, *([self.idle_ms] if self.idle_ms else [])], default=0.0)
        return any(took > BUSY * self.idle_ms for took in probes)


def _device_time_beyond_latency(metrics: Mapping[str, float]) -> bool:
    pairs = (("eager_kernel_ms", "eager_ms"), ("compiled_kernel_ms", "compiled_ms"))
    return any(metrics.get(device, 0.0) > _BEYOND_LATENCY * metrics.get(call, float("inf")) for device, call in pairs)


def _group(cell: Cell) -> Group:
    return cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size


_STAT = Path("/proc/stat")
#: Columns of a core in /proc/stat that are time without work: idle and waiting for a disk (proc(5)).
_IDLE = (3, 4)
#: Seconds between two looks at the GPU: NVML's utilisation is of the last sixth of a second to second (nvml.h).
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of the machine by one device's part of a run.

    Shares are between 0 and 1, of the cores that belong to the device and of the time of the cells that may be under way at
    once (`workers`); None is a share that this machine does not report. `waiting` is for the device or its memory, and
    `standing` is being stopped for another cell or for want of cores.
    """

    seconds: float
    workers: int
    cores: int
    cores_busy: float | None
    gpu_busy: float | None
    gpu_memory_bytes: float | None
    gpu_memory_most_bytes: float | None
    working: float
    waiting: float
    standing: float

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with the figures that are known."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}

    def __str__(self) -> str:
        return usage_words(self.to_json())


def usage_words(usage: Mapping[str, Any]) -> str:
    """Return a line that describes a usage in the form of `to_json`."""
    device = [f"GPU {_percent(usage['gpu_busy'])} busy"] if "gpu_busy" in usage else []
    if "gpu_memory_bytes" in usage:
        most = usage["gpu_memory_most_bytes"]
        device.append(f"GPU memory {usage['gpu_memory_bytes'] / 1e9:.0f} GB in the mean, {most / 1e9:.0f} GB at most")
    cores = [f"{usage['cores']} cores {_percent(usage['cores_busy'])} busy"] if "cores_busy" in usage else []
    cells = f"{usage['workers']} cells at a time " if usage["workers"] > 1 else "one cell at a time "
    spent = ", ".join(f"{_percent(usage[name])} {words}" for name, words in _SPENT)
    machine = ", ".join([*cores, *device])
    return f"{usage['seconds']:.0f} s: {machine}{'; ' if machine else ''}{cells}{spent}"


_SPENT = (("working", "at work"), ("waiting", "waiting for the device"), ("standing", "standing still"))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


class UsageMeter:
    """A meter of a device and its cores, from its creation to `usage`, which also adds up the times that cells report.

    It watches the GPU inside its context. `gpu` is the UUID of the GPU, `cores` are the cores of its workers and the cores
    that are kept free.
    """

    def __init__(self, gpu: str | None, cores: Sequence[int], workers: int) -> None:
        self._gpu, self._cores, self._workers = gpu, list(cores), workers
        self._waited_s = self._stopped_s = self._lived_s = 0.0
        self._looks: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._began, self._stat = time.monotonic(), read_cores(self._cores)
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def took(self, measurement: Measurement) -> None:
        """Add the times that one cell reports."""
        details = measurement.details
        stopped_s = float(details.get("stopped_s", 0.0))
        self._lived_s += measurement.wall_s
        self._stopped_s += stopped_s
        self._waited_s += max(0.0, float(details.get("waited_s", 0.0)) - stopped_s)

    def usage(self) -> Usage:
        """Return the usage until now."""
        seconds = max(1e-9, time.monotonic() - self._began)
        there_s = seconds * self._workers
        busy, memory = zip(*self._looks, strict=True) if self._looks else ((), ())
        waiting, standing = min(1.0, self._waited_s / there_s), min(1.0, self._stopped_s / there_s)
        return Usage(
            seconds=seconds,
            workers=self._workers,
            cores=len(self._cores),
            cores_busy=busy_share(self._stat, read_cores(self._cores)),
            gpu_busy=mean(busy) if busy else None,
            gpu_memory_bytes=mean(memory) if memory else None,
            gpu_memory_most_bytes=max(memory) if memory else None,
            working=max(0.0, min(1.0, self._lived_s / there_s) - waiting - standing),
            waiting=waiting,
            standing=standing,
        )

    def _look(self) -> None:
        if not self._gpu:
            return
        with suppress(Exception):  # no package, no driver, or a driver that does not answer
            import pynvml

            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByUUID(self._gpu)
            while not self._over.wait(_LOOK_S):
                busy = pynvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
                self._looks.append((busy, float(pynvml.nvmlDeviceGetMemoryInfo(device).used)))


def read_cores(cores: Sequence[int]) -> list[tuple[float, float]]:
    """Return each core's time without work and its total time, in the kernel's ticks; leave out cores that it does not list."""
    try:
        lines = _STAT.read_text().splitlines()
    except OSError:
        return []
    ticks = {
        line.split()[0]: [float(number) for number in line.split()[1:9]] for line in lines if line.startswith("cpu")
    }
    of_cores = [ticks[f"cpu{core}"] for core in cores if f"cpu{core}" in ticks]
    return [(sum(times[column] for column in _IDLE), sum(times)) for times in of_cores]


def busy_share(before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]) -> float | None:
    """Return the share of the time between two readings in which the cores worked; None if no time has passed."""
    idle = sum(now - then for (then, _), (now, _) in zip(before, after, strict=False))
    total = sum(now - then for (_, then), (_, now) in zip(before, after, strict=False))
    return 1 - idle / total if total > 0 else None
