"""What is read of a host and set on it: cores, memory, a GPU's telemetry from a fake NVML, and the pace of fixed work."""

import sys

import pytest

from collector.device import device_named
from collector.machine.host import Watcher, available_bytes, share_out, throttled
from collector.machine.yardstick import DEVICE_BYTES, GpuYardstick, NoYardstickError


def test_cores_are_shared_out_to_no_more_workers_than_there_are():
    assert share_out([4, 7, 9, 10, 11], 2) == [[4, 7], [9, 10]]
    with pytest.raises(ValueError, match="3 workers need at least 3 cores, there are 2"):
        share_out([0, 1], 3)


GB = 1 << 30
MEMINFO = {"proc/meminfo": f"MemTotal: {64 * GB >> 10} kB\nMemAvailable: {20 * GB >> 10} kB\n"}
CGROUP = {"memory.max": f"{16 * GB}\n", "memory.current": f"{15 * GB}\n", "memory.stat": f"inactive_file {4 * GB}\n"}
OLDER = {"memory/memory.limit_in_bytes": f"{8 * GB}", "memory/memory.usage_in_bytes": f"{9 * GB}"}


@pytest.mark.parametrize(
    ("host", "container", "left"),
    [
        ({}, {}, None),
        ({"proc/meminfo": "MemTotal: 5 kB\n"}, {}, None),
        (MEMINFO, {}, 20 * GB),
        (MEMINFO, {"memory.max": "max\n"}, 20 * GB),
        (MEMINFO, CGROUP, 5 * GB),
        (MEMINFO, OLDER, 0),
    ],
)
def test_the_least_that_anything_allows_is_left(tmp_path, host, container, left):
    for name, text in (host | {f"sys/fs/cgroup/{name}": text for name, text in container.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == left


class FakeNvml:
    """The part of pynvml that is used; functions named in `silent` raise an error."""

    NVMLError = LookupError
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
                raise LookupError(name)
            return answers[name](*arguments)

        return ask


def test_a_gpu_tells_what_its_driver_knows_and_no_more(monkeypatch):
    def watcher(nvml, gpu="GPU-1"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return Watcher(gpu)

    found = watcher(FakeNvml()).read()
    assert found.pop("load1") >= 0
    assert found == {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 312.5,
        "clocks_held_by": ["idle", "power_cap", "hardware_thermal"],
        "processes": 3,
    }
    less = watcher(FakeNvml("nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"))
    assert set(less.read()) == {"load1", "sm_mhz", "memory_mhz", "temperature_c", "clocks_held_by"}
    for nvml in (None, FakeNvml("nvmlInit"), FakeNvml("nvmlDeviceGetHandleByUUID")):
        assert set(watcher(nvml).read()) == {"load1"}
    assert set(watcher("no library", None).read()) == {"load1"}  # on a CPU
    assert watcher(FakeNvml()).energy_mj() == 987_654_321
    for nvml in (FakeNvml("nvmlDeviceGetTotalEnergyConsumption"), None):
        assert watcher(nvml).energy_mj is None
    readings = [{"clocks_held_by": ["idle", "application_clocks"]}, {"load1": 1.0}, {"clocks_held_by": ["power_cap"]}]
    assert throttled(readings) == ["power_cap"]
    assert throttled(readings[:2]) == []


@pytest.mark.gpu
def test_a_real_gpu_is_read():
    found = Watcher(device_named("cuda").uuid()).read()
    assert 100 < found["sm_mhz"] < 5000
    assert 10 < found["temperature_c"] < 110
    assert 10 < found["power_w"] < 2000


class FakeDriver:
    """Answers like libcuda: each call succeeds and makes a 1, unless it has another code or is absent."""

    def __init__(self, **codes):
        self.codes = codes

    def __getattr__(self, name):
        if self.codes.get(name) == "absent":
            raise AttributeError(name)

        def call(*arguments):
            if name in ("cuCtxGetCurrent", "cuModuleLoadData"):
                arguments[0]._obj.value = 1
            return self.codes.get(name, 0)

        return call


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ({"cuModuleLoadData": "absent"}, "libcuda has no cuModuleLoadData"),
        ({"cuLaunchKernel": 1}, "cuLaunchKernel failed with CUDA error 1"),
    ],
)
def test_a_driver_that_fails_or_has_no_context_is_told_in_a_line(codes, said, monkeypatch):
    with pytest.raises(NoYardstickError, match=said):
        GpuYardstick(FakeDriver(**codes)).times_ms()
    monkeypatch.setattr(FakeDriver, "cuCtxGetCurrent", lambda self, context: 0, raising=False)
    with pytest.raises(NoYardstickError, match="no CUDA context"):
        GpuYardstick(FakeDriver())


@pytest.mark.gpu
def test_the_work_on_a_gpu_repeats_itself():
    import torch

    torch.ones(1, device="cuda")
    before = torch.cuda.mem_get_info()[0]
    yardstick = GpuYardstick()
    first, second = yardstick.times_ms(), yardstick.times_ms()
    assert second == pytest.approx(first, rel=0.1)
    assert all(0.01 < took < 50 for took in first)
    assert before - torch.cuda.mem_get_info()[0] < DEVICE_BYTES // 2
