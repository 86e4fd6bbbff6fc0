"""Memory that calls keep is counted by the call, and the host's time in a call by part."""

import pytest
import torch

from collector.device import device_named
from collector.measure.host_time import CALL, HostTime, Span, host_time
from collector.measure.memory import BEFORE, LEAK_CALLS, SavedTensors, leaked_bytes_per_call, peak_of
from collector.measure.timing import graph_use, host_spans, record


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


def spans(start, *, guards=10_000, wait=0):
    """The events of a training call of 100 microseconds on a GPU; the backward pass is on thread 2."""
    made = [
        (CALL, 1, 0, 100),
        ("TorchDynamo Cache Lookup", 1, 1, 1 + guards / 1e3),
        ("Torch-Compiled Region: 0/0", 1, 20, 60),
        ("CompiledFunction", 1, 22, 58),
        ("## Call CompiledFxGraph fabc ##", 1, 25, 55),
        ("triton_poi_fused_add_0", 1, 30, 40),
        ("cuLaunchKernelEx", 1, 32, 38),
        ("aten::mm", 1, 41, 50),
        ("cudaLaunchKernel", 1, 44, 48),
        ("autograd::engine::evaluate_function: CompiledFunctionBackward", 2, 62, 92),
        ("CompiledFunctionBackward", 2, 63, 91),
        ("cudaGraphLaunch", 2, 70, 90),
        ("cudaStreamSynchronize", 1, 93, 93 + wait),
    ]
    return [Span(name, thread, start + int(1e3 * begin), start + int(1e3 * end)) for name, thread, begin, end in made]


def test_the_parts_of_a_call_add_up_also_in_a_real_profile():
    found = host_time(spans(5, wait=5))
    assert found == HostTime(
        95.0,
        {
            **{"guards": 10.0, "bytecode": 4.0, "aot_autograd": 6.0 + 8.0, "inductor_wrapper": 11.0},
            **{"launches": 4.0 + 6.0 + 4.0 + 20.0, "python": 15.0, "operators": 5.0 + 2.0},
        },
        5.0,
    )
    assert sum(found.parts.values()) == found.us
    assert sum(found.parts_of(19.0).values()) == pytest.approx(19.0, abs=0.01)
    assert found.parts_of(19.0)["guards"] == 2.0
    calls = [*spans(0, guards=1_000), *spans(10**6, guards=2_000, wait=1), *spans(2 * 10**6, guards=3_000, wait=3)]
    assert host_time(reversed(calls)).parts["guards"] == 2.0, "the median call"
    assert host_time(calls[1:2]) is None
    program = torch.compile(lambda x: torch.relu(x @ x).sum(0), backend="aot_eager")
    x = torch.randn(4, 4)
    program(x)
    found = host_time(host_spans(record(lambda: program(x), 3, "cpu")))
    assert {"guards", "bytecode", "aot_autograd", "operators"} <= found.parts.keys()
    assert sum(found.parts.values()) == pytest.approx(found.us, abs=0.01)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"triton.cudagraphs": True}])
def test_on_a_gpu_host_time_is_what_a_call_takes_to_return(options):
    """The outside check: the clock around calls that nobody profiles, which are shorter than the profiled ones."""
    import time

    def chain(x):
        for _ in range(20):
            x = torch.softmax(x @ x, -1)
        return x

    program, x = torch.compile(chain, options=options), torch.randn(64, 64, device="cuda")
    took = []
    with torch.inference_mode():
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            program(x)
            took.append(1e6 * (time.perf_counter() - begin))
        made = record(lambda: program(x), 5, "cuda")
        again = host_time(host_spans(record(lambda: program(x), 5, "cuda")))
    found = host_time(host_spans(made))
    assert {"guards", "inductor_wrapper", "launches"} <= found.parts.keys(), found
    assert 0.8 * sorted(took)[10] < found.us, (found, took)
    shares = [{name: us / one.us for name, us in one.parts.items()} for one in (found, again)]
    assert shares[1] == pytest.approx(shares[0], abs=0.1)
    assert sum(found.parts.values()) == pytest.approx(found.us, abs=0.01)
    use = graph_use(made)
    assert (use.launches, use.share > 0.5) == ((1, True) if options else (0, False)), "the marks are no kernels"
    # The input is copied to where the graph reads it.
    assert use.kernels_outside <= 1 if options else use.kernels_outside >= 20, use.outside
