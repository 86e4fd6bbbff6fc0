"""A part of the device's memory that torch's allocator may take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from collector.measure import memory


@pytest.fixture
def allocator(monkeypatch):
    """torch's allocator of a GPU with 80 bytes, as far as `limited` asks it: its parts, and failures to allocate."""
    found = SimpleNamespace(parts=[], failures=0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70, 80))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", found.parts.append)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": found.failures})
    return found


def test_the_part_is_that_of_the_whole_device_and_ends_with_the_context(allocator):
    with memory.limited("cuda", lambda: 20):
        assert allocator.parts == [0.25]
    assert allocator.parts == [0.25, 1.0]


@pytest.mark.parametrize(("device", "size"), [("cpu", 20), ("cuda", None)])
def test_a_cpu_and_a_cell_without_a_promise_have_no_limit(device, size, allocator):
    with memory.limited(device, lambda: size):
        allocator.failures += 1
    assert allocator.parts == []


def test_an_allocation_that_failed_in_silence_is_told(allocator):
    with (
        pytest.raises(torch.OutOfMemoryError, match="failed within the 0"),
        memory.limited("cuda", lambda: 20),
    ):
        allocator.failures += 1
    assert allocator.parts[-1] == 1.0


@pytest.mark.gpu
def test_a_gpus_allocator_keeps_to_it():
    with pytest.raises(torch.OutOfMemoryError), memory.limited("cuda", lambda: 1 << 30):
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    with memory.limited("cuda", lambda: 4 << 30):
        torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
