"""How a run used its machine, and which measurements shared the device: found by the run's own figures, repeated once."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from jobs.pool import usage
from jobs.pool.usage import UsageMeter
from tests.factories import cell, passing


class Driver:
    """An NVML that says one utilisation after the other."""

    def __init__(self, *looks):
        self.looks, self.asked = list(looks), []

    def nvmlInit(self):  # noqa: N802 - NVML's name
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, _):  # noqa: N802
        return SimpleNamespace(gpu=self.looks[0][0])

    def nvmlDeviceGetMemoryInfo(self, _):  # noqa: N802
        if len(self.looks) == 1:
            raise RuntimeError("the driver answers no more")
        return SimpleNamespace(used=self.looks.pop(0)[1])


#: Two cores and the sum of both, in the columns of proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest.
STAT = """cpu  300 0 100 500 100 0 0 0 50 0
cpu0 100 0 50 300 50 0 0 0 50 0
cpu1 200 0 50 200 50 0 0 0 0 0
intr 1 2 3
"""


def seen(meter, monkeypatch, seconds=10.0):
    monkeypatch.setattr(meter, "_began", time.monotonic() - seconds)
    return meter.usage()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Writes what the kernel tells of its cores."""
    monkeypatch.setattr(usage, "_STAT", tmp_path / "stat")
    (tmp_path / "stat").write_text(STAT)
    return (tmp_path / "stat").write_text


def test_cores_and_gpu_are_watched_until_the_driver_answers_no_more(kernel, monkeypatch):
    driver = Driver((50, 10 * 10**9), (100, 30 * 10**9), (0, 0))
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(usage, "_LOOK_S", 0.001)
    with UsageMeter("GPU-1", [0, 1], 2) as meter:
        meter._thread.join(10)
        kernel(STAT.replace("cpu0 100 0 50 300", "cpu0 130 0 50 310"))
    found = seen(meter, monkeypatch)
    assert driver.asked == ["GPU-1"]
    assert (found.gpu_busy, found.gpu_memory_bytes, found.gpu_memory_most_bytes) == (0.75, 20e9, 30e9)
    assert (found.cores_busy, found.cores, found.workers) == (0.75, 2, 2)


def test_the_time_of_the_workers_is_divided_into_work_waiting_and_standing(monkeypatch):
    meter = UsageMeter(None, [], 2)
    # The second one stood longer than it waited: bundles are rounded.
    for wall_s, waited_s, stopped_s in ((8.0, 3.0, 1.0), (6.0, 1.0, 2.0), (2.0, 0.0, 0.0)):
        meter.took(passing(cell(), wall_s=wall_s, details={"waited_s": waited_s, "stopped_s": stopped_s}))
    found = seen(meter, monkeypatch)
    assert found.standing == pytest.approx(3 / 20, abs=1e-3)
    assert found.waiting == pytest.approx(2 / 20, abs=1e-3)
    assert found.working == pytest.approx((16 - 5) / 20, abs=1e-3)
