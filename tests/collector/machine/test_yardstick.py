"""The fixed work that tells the pace of the machine, with a driver of our own where there is no GPU."""

import pytest

from collector.machine.yardstick import DEVICE_BYTES, GpuYardstick, NoYardstickError, host_ms


class FakeDriver:
    """Answers like libcuda: counts what is allocated, and says that a product takes 2 ms and the copies take 1 ms."""

    def __init__(self, **codes):
        self.codes, self.called, self.held, self.function = codes, [], 0, b""

    def __getattr__(self, name):
        if self.codes.get(name) == "absent":
            raise AttributeError(name)

        def call(*arguments):
            self.called.append(name)
            if name in ("cuCtxGetCurrent", "cuModuleLoadData", "cuEventCreate"):
                arguments[0]._obj.value = 1
            if name == "cuModuleGetFunction":
                arguments[0]._obj.value = 10 + len(arguments[2].value)
            if name == "cuMemAlloc_v2":
                arguments[0]._obj.value = 1 << 40
                self.held += 1
            if name == "cuMemFree_v2":
                self.held -= 1
            if name == "cuLaunchKernel":
                self.function = arguments[0].value
            if name == "cuEventElapsedTime":
                arguments[0]._obj.value = 2.0 if self.function == 10 + len(b"product") else 1.0
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


def test_a_product_and_copies_and_the_work_of_the_host_are_timed():
    driver = FakeDriver()
    assert GpuYardstick(driver).times_ms() == (2.0, 1.0)
    assert driver.held == 0
    assert driver.called.count("cuEventCreate") == driver.called.count("cuEventDestroy_v2") == 4
    assert 0.1 < host_ms() < 500


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
