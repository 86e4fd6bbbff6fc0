"""The host's time in a call by part: from hand-made events of two threads, and from a real profile on a CPU."""

import pytest
import torch

from collector.measure.host_time import CALL, HostTime, Span, host_time
from collector.measure.timing import graph_use, host_spans, record


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


def test_the_parts_of_a_call_exclude_what_they_call_and_add_up():
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


def test_a_real_profile_has_the_layers_of_torch():
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
        profiler = record(lambda: program(x), 5, "cuda")
        again = host_time(host_spans(record(lambda: program(x), 5, "cuda")))
    found = host_time(host_spans(profiler))
    assert {"guards", "inductor_wrapper", "launches"} <= found.parts.keys(), found
    assert 0.8 * sorted(took)[10] < found.us, (found, took)
    shares = [{name: us / one.us for name, us in one.parts.items()} for one in (found, again)]
    assert shares[1] == pytest.approx(shares[0], abs=0.1)
    assert sum(found.parts.values()) == pytest.approx(found.us, abs=0.01)
    use = graph_use(profiler, 5)
    assert (use.launches, use.share > 0.5) == ((1, True) if options else (0, False)), "the marks are no kernels"
    # The input is copied to where the graph reads it.
    assert use.kernels_outside <= 1 if options else use.kernels_outside >= 20, use.outside
