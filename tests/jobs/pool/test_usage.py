"""How a run used its machine, and which measurements shared the device: found by the run's own figures, repeated once."""

from __future__ import annotations

import sys
import time
from unittest.mock import Mock

import pytest

from jobs.pool import usage
from jobs.pool.usage import UsageMeter
from tests.factories import cell, passing

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
    driver = Mock()  # an NVML that says one utilisation after the other
    driver.nvmlDeviceGetUtilizationRates.side_effect = [Mock(gpu=50), Mock(gpu=100), Mock(gpu=0)]
    driver.nvmlDeviceGetMemoryInfo.side_effect = [Mock(used=10e9), Mock(used=30e9), RuntimeError("it answers no more")]
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(usage, "_LOOK_S", 0.001)
    with UsageMeter("GPU-1", [0, 1], 2) as meter:
        meter._thread.join(10)
        kernel(STAT.replace("cpu0 100 0 50 300", "cpu0 130 0 50 310"))
    found = seen(meter, monkeypatch)
    driver.nvmlDeviceGetHandleByUUID.assert_called_once_with("GPU-1")
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
