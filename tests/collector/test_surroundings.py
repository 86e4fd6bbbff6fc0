"""What surrounds a measurement, read from a driver library that is made up here, and from a real one on a GPU."""

from __future__ import annotations

import ctypes

import pytest

from collector.machine import telemetry as surroundings
from collector.machine.telemetry import Watcher, throttled


class Driver:
    """NVML as far as it is asked; `silent` functions answer with an error."""

    def __init__(self, *silent):
        self.silent = silent

    def __getattr__(self, name):
        answers = {
            "nvmlInit_v2": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid, gpu: None,
            "nvmlDeviceGetClockInfo": lambda gpu, kind, out: self.put(out, {1: 1980, 2: 3201}[kind]),
            "nvmlDeviceGetTemperature": lambda gpu, sensor, out: self.put(out, 41),
            "nvmlDeviceGetPowerUsage": lambda gpu, out: self.put(out, 312_500),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu, out: self.put(out, 0x4 | 0x40 | 0x1),
            "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu, count, rows: self.put(count, 3),
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *args: 3 if name in self.silent else answers[name](*args) or 0

    @staticmethod
    def put(place, value):
        place._obj.value = value


@pytest.fixture(autouse=True)
def a_gpu(request, monkeypatch):
    if "gpu" not in request.keywords:
        monkeypatch.setattr(surroundings, "_uuid", lambda: b"GPU-1")


def test_a_gpu_tells_clocks_heat_power_and_company():
    found = Watcher("cuda", Driver()).read()
    assert found.pop("load1") >= 0
    assert found == {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 312.5,
        "clocks_held_by": ["idle", "power_cap", "hardware_thermal"],
        "processes": 3,
    }


def test_what_the_driver_does_not_tell_is_absent():
    found = Watcher("cuda", Driver("nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses_v3")).read()
    assert set(found) == {"load1", "sm_mhz", "memory_mhz", "temperature_c", "clocks_held_by"}


@pytest.mark.parametrize("silent", ["nvmlInit_v2", "nvmlDeviceGetHandleByUUID"])
def test_without_a_driver_that_answers_only_the_host_is_read(silent):
    assert set(Watcher("cuda", Driver(silent)).read()) == {"load1"}


def test_on_a_cpu_nobody_asks_a_driver():
    assert set(Watcher("cpu", "no library").read()) == {"load1"}


def test_held_back_is_what_slows_and_not_what_is_set():
    readings = [{"clocks_held_by": ["idle", "application_clocks"]}, {"load1": 1.0}, {"clocks_held_by": ["power_cap"]}]
    assert throttled(readings) == ["power_cap"]
    assert throttled(readings[:2]) == []


def test_a_process_row_is_as_long_as_the_drivers():
    assert ctypes.sizeof(surroundings._Process) == 24


@pytest.mark.gpu
def test_a_real_gpu_is_read():
    found = Watcher("cuda").read()
    assert 100 < found["sm_mhz"] < 5000
    assert 10 < found["temperature_c"] < 110
    assert 10 < found["power_w"] < 2000
    assert isinstance(found["clocks_held_by"], list)
