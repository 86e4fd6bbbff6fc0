"""Telemetry, read from a fake NVML, and from a real one on a GPU."""

from __future__ import annotations

import sys

import pytest

from collector.device import device_named
from collector.machine.host import Watcher, throttled


class NVMLError(Exception):
    pass


class FakeNvml:
    """The part of pynvml that is used; functions named in `silent` raise an error."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *silent):
        self.silent = silent

    def __getattr__(self, name):
        answers = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 41,
            "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: 987_654_321,
            "nvmlDeviceGetPowerUsage": lambda gpu: 312_500,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x4 | 0x40 | 0x1,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: ["one", "two", "three"],
        }

        def ask(*arguments):
            if name in self.silent:
                raise NVMLError(name)
            return answers[name](*arguments)

        return ask


@pytest.fixture
def read(monkeypatch):
    def reading(nvml, gpu="GPU-1"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return Watcher(gpu).read()

    return reading


def test_a_gpu_tells_clocks_temperature_power_and_processes(read):
    found = read(FakeNvml())
    assert found.pop("load1") >= 0
    assert found == {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 312.5,
        "clocks_held_by": ["idle", "power_cap", "hardware_thermal"],
        "processes": 3,
    }


def test_what_the_driver_does_not_tell_is_absent(read):
    found = read(FakeNvml("nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"))
    assert set(found) == {"load1", "sm_mhz", "memory_mhz", "temperature_c", "clocks_held_by"}


@pytest.mark.parametrize("nvml", [None, FakeNvml("nvmlInit"), FakeNvml("nvmlDeviceGetHandleByUUID")])
def test_without_a_package_or_a_driver_that_answers_only_the_host_is_read(read, nvml):
    assert set(read(nvml)) == {"load1"}
    assert set(read("no library", None)) == {"load1"}  # on a CPU


def test_the_energy_counter_is_read_where_there_is_one(monkeypatch):
    read = []
    for nvml in (FakeNvml(), FakeNvml("nvmlDeviceGetTotalEnergyConsumption"), None):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        read.append(Watcher("GPU-1").energy_mj)
    assert (read[0](), *read[1:]) == (987_654_321, None, None)


def test_throttled_is_what_slows_and_not_what_is_set():
    readings = [{"clocks_held_by": ["idle", "application_clocks"]}, {"load1": 1.0}, {"clocks_held_by": ["power_cap"]}]
    assert throttled(readings) == ["power_cap"]
    assert throttled(readings[:2]) == []


@pytest.mark.gpu
def test_a_real_gpu_is_read():
    found = Watcher(device_named("cuda").uuid()).read()
    assert 100 < found["sm_mhz"] < 5000
    assert 10 < found["temperature_c"] < 110
    assert 10 < found["power_w"] < 2000
