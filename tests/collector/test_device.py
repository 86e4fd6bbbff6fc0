"""What a cell asks of its device."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from collector.device import device_here, device_named
from collector.machine.environment import cpu_name
from collector.machine.health import LITTLE_MEMORY


def test_a_limit_ends_with_its_context_and_not_every_cell_has_one(monkeypatch):
    # torch's allocator of a GPU with 80 bytes, as far as `limited` asks it: its parts, and failures to allocate.
    allocator = SimpleNamespace(parts=[], failures=0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70, 80))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", allocator.parts.append)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": allocator.failures})
    with device_named("cuda").limited(lambda: 20):
        assert allocator.parts == [0.25]
    assert allocator.parts == [0.25, 1.0]
    limited = device_named("cuda").limited(lambda: 20)
    with pytest.raises(torch.OutOfMemoryError, match="failed within the 0"), limited:
        allocator.failures += 1
    assert allocator.parts == [0.25, 1.0] * 2
    for device, size in (("cpu", 20), ("cuda", None)):
        with device_named(device).limited(lambda size=size: size):
            allocator.failures += 1
    assert len(allocator.parts) == 4, "a CPU and a cell without a promise have no limit"


def test_the_peak_of_a_processor_counts_shared_weights_once():
    weights = torch.zeros(1000)
    made = device_named("cpu").peak_bytes(lambda: torch.zeros(5000).sum(), [weights, weights.view(10, 100)], 2)
    assert 24_000 <= made < 25_000
    assert device_named("cpu").peak_bytes(int, [], 1) is None, "nothing was allocated"


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_a_gpu_in_use_tells_what_torch_counts_and_is_asked_nothing_before(name, monkeypatch):
    kind, gpu, done = getattr(torch, name), device_named(name), []
    counts = {"memory_reserved": 5, "max_memory_reserved": 7, "memory_allocated": 3, "max_memory_allocated": 6}
    for asked, value in counts.items():
        monkeypatch.setattr(kind, asked, lambda value=value: value)
    for asked in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(kind, asked, partial(done.append, asked))
    monkeypatch.setattr(kind, "is_initialized", lambda: False)
    gpu.forget_peaks()
    gpu.give_back_unused()
    assert (gpu.reserved(), gpu.most_reserved(), done) == (0, 0, []), "that would make a context"
    monkeypatch.setattr(kind, "is_initialized", lambda: True)
    monkeypatch.setattr(kind, "mem_get_info", lambda *_: (LITTLE_MEMORY - 1, 80))
    assert gpu.peak_bytes(partial(done.append, "call"), [], 2) == 6
    assert done == ["synchronize", "reset_peak_memory_stats", "call", "call", "synchronize"]
    assert (gpu.reserved(), gpu.most_reserved(), gpu.allocated(), gpu.is_full()) == (5, 7, 3, True)
    gpu.give_back_unused()
    assert done[-1] == "empty_cache"


def test_facts_name_the_gpu_and_a_device_that_is_not_here_has_none(monkeypatch):
    named = {"name": "H100", "total_memory": 80, "major": 9, "minor": 0, "multi_processor_count": 132, "uuid": "ab-1"}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**named))
    found = device_named("cuda").facts()
    assert (found["gpu"], found["gpu_memory_bytes"], found["capability"]) == ("H100", 80, "9.0")
    assert device_named("cuda").uuid() == "GPU-ab-1"
    with pytest.raises(ValueError, match="hpu is no device that can be measured: cuda, xpu, mps, cpu"):
        device_named("hpu")
    for name in ("xpu", "mps"):
        assert not device_named(name).is_here()
        with pytest.raises(RuntimeError, match=f"torch finds no {name} here"):
            device_named(name).facts()


@pytest.mark.parametrize("name", ["xpu", "mps"])
def test_what_is_here_is_taken_and_named(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(name))
    properties = SimpleNamespace(name="A GPU", total_memory=80, driver_version="1.6")
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda _: properties)
    assert device_here() == name
    assert device_named(name).facts()["gpu"] == ("A GPU" if name == "xpu" else f"{cpu_name()} (mps)")
    answers = [device_named(name).idle_probe(0.0), device_named(name).yardstick(), device_named(name).peak(int)]
    assert answers == [None] * 3


@pytest.mark.gpu
def test_a_gpus_allocator_keeps_to_it():
    with pytest.raises(torch.OutOfMemoryError), device_named("cuda").limited(lambda: 1 << 30):
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    with device_named("cuda").limited(lambda: 4 << 30):
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")


@pytest.mark.gpu
def test_exact_products_have_all_of_the_mantissa():
    one = torch.rand(512, 512, device="cuda") + 1
    exact, device = one.double() @ one.double(), device_named("cuda")
    errors = {}
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        errors["coarse"] = ((one @ one).double() / exact - 1).abs().max()
        with device.exact_products():
            assert not device.allows_tf32()
            errors["exact"] = ((one @ one).double() / exact - 1).abs().max()
        assert device.allows_tf32()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors["exact"] < 1e-6 < 1e-5 < errors["coarse"]
