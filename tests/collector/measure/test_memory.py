"""Memory that calls keep is counted by the call, and a first call that sets something up is none."""

from __future__ import annotations

import pytest

from collector.device import device_named
from collector.measure.memory import LEAK_CALLS, leaked_bytes_per_call


class Heap:
    def __init__(self, each, first=0):
        self.calls, self.each, self.first = 0, each, first

    def call(self):
        self.calls += 1

    def held(self):
        return 1000 + self.each * self.calls + (self.first if self.calls else 0)


@pytest.mark.parametrize(("each", "first"), [(0, 0), (0, 512), (64, 0), (64, 512)])
def test_a_leak_is_what_each_call_keeps(each, first):
    heap = Heap(each, first)
    assert leaked_bytes_per_call(heap.call, heap.held) == each
    assert heap.calls == LEAK_CALLS + 1


def test_memory_that_is_given_back_is_no_leak():
    heap = Heap(-8)
    assert leaked_bytes_per_call(heap.call, heap.held) == 0


@pytest.mark.gpu
def test_on_a_gpu_a_call_that_keeps_its_output_leaks_it():
    import torch

    kept, allocated = [], device_named("cuda").allocated
    leaking = leaked_bytes_per_call(lambda: kept.append(torch.zeros(1024, device="cuda")), allocated)
    assert leaking == 4096
    assert leaked_bytes_per_call(lambda: torch.zeros(1024, device="cuda"), allocated) == 0
