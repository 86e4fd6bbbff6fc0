"""Memory that calls keep is counted by the call, and a first call that sets something up is none."""

import pytest
import torch

from collector.device import device_named
from collector.measure.memory import BEFORE, LEAK_CALLS, SavedTensors, leaked_bytes_per_call, peak_of


class Heap:
    def __init__(self, each, first=0, at=1):
        self.calls, self.each, self.first, self.at = 0, each, first, at

    def call(self):
        self.calls += 1

    def held(self):
        return 1000 + self.each * self.calls + (self.first if self.calls >= self.at else 0)


def test_a_leak_is_what_each_call_keeps_and_saved_tensors_count_once():
    for each, first, at in [(0, 512, 40), (64, 0, 1), (64, 512, 20), (-8, 0, 1)]:
        heap = Heap(each, first, at)
        assert leaked_bytes_per_call(heap.call, heap.held) == max(0, each)
        assert heap.calls == LEAK_CALLS + 1
    weight, x = torch.ones(8, 4, requires_grad=True), torch.ones(2, 8)
    found = SavedTensors([weight, x])

    def call():
        made = (x @ weight).exp()  # saves its result, which the product saves again, as a view
        (made.view(8) * torch.ones(8).requires_grad_()).sum().backward()

    found.watch(call)
    operators = {((2, 4), "float32"): ["exp", "exp", "mul"]}
    assert found.rows(operators) == [("exp, mul", [2, 4], "float32", 1, 32), ("", [8], "float32", 1, 32)]
    assert found.bytes == 64


def entry(action, addr, size, *frames):
    made = [{"filename": file, "line": line, "name": "call"} for file, line in frames]
    return {"action": action, "addr": addr, "size": size, "frames": made}


def test_what_is_alive_at_the_peak_is_told_by_the_line_that_allocated_it(tmp_path):
    code = tmp_path / "generated.py"
    code.write_text("buf3 = empty(4)\nbuf7 = empty(4)\n")
    inside, line = (f"{torch.__path__[0]}/functional.py", 1), [(str(code), number) for number in (1, 2)]
    trace = [
        entry("alloc", 1, 100, inside, line[0]),
        entry("free_requested", 9, 300),  # allocated before the call
        entry("alloc", 2, 100, line[1]),
        entry("alloc", 3, 400),
        entry("segment_alloc", 3, 4000),
        entry("free_requested", 1, 100),
        entry("alloc", 4, 50, inside),
    ]
    peak = peak_of(trace, 1000)
    assert peak.bytes == 1300
    assert peak.rows == [(BEFORE, 0, 700), ("(no Python frame)", 1, 400), ("buf = empty(4)", 2, 200)]
    assert sum(size for _, _, size in peak.rows) == peak.bytes
    assert peak_of([], 1000).rows == [(BEFORE, 0, 1000)]


@pytest.mark.gpu
def test_on_a_gpu_the_lines_add_up_to_the_allocators_own_peak():
    a = torch.ones(1024, 1024, device="cuda")
    statistics = {}

    def call():
        torch.cuda.reset_peak_memory_stats()
        b = a + 1
        c = b @ b
        del b
        (c[:512] * 2).sum().item()
        statistics.update(torch.cuda.memory_stats())

    call()
    peak = device_named("cuda").peak(call)
    assert peak.bytes == statistics["requested_bytes.all.peak"]
    assert any(line == "b = a + 1" and size == 4 << 20 for line, _, size in peak.rows)
    assert peak.bytes == pytest.approx(statistics["allocated_bytes.all.peak"], rel=0.01)


@pytest.mark.gpu
def test_on_a_gpu_a_call_that_keeps_its_output_leaks_it():
    kept, allocated = [], device_named("cuda").allocated
    leaking = leaked_bytes_per_call(lambda: kept.append(torch.zeros(1024, device="cuda")), allocated)
    assert leaking == 4096
    assert leaked_bytes_per_call(lambda: torch.zeros(1024, device="cuda"), allocated) == 0
