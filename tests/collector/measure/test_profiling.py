"""How a profile becomes the device time of one call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from collector.measure.timing import busy_ms, graph_use, quieter, record

MS = 1e6


def calls_of(*lengths):
    """Two kernels a call, one after the other, each call 100 ms after the one before."""
    return [
        (number * 100 * MS + at, length * MS / 2) for number, length in enumerate(lengths) for at in (0, length * MS)
    ]


def test_a_call_that_another_process_made_longer_changes_nothing():
    assert busy_ms(calls_of(2, 2, 2, 2, 2), 5) == pytest.approx(2.0)
    assert busy_ms(calls_of(2, 2, 9, 2, 2), 5) == pytest.approx(2.0)


def test_kernels_that_overlap_count_once():
    assert busy_ms([(0, 2 * MS), (MS, 2 * MS), (50 * MS, 2 * MS), (51 * MS, 2 * MS)], 2) == pytest.approx(3.0)


def test_calls_with_other_numbers_of_kernels_give_the_mean():
    assert busy_ms([*calls_of(2, 2), (300 * MS, MS)], 2) == pytest.approx(2.5)


def event(name, correlation, ns=0, on_gpu=True):
    """An event of the profiler, as far as it is read."""
    device = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    facts = {"name": name, "correlation_id": correlation, "start_ns": 0, "duration_ns": ns, "device_type": device}
    methods = {key: lambda value=value: value for key, value in facts.items()}
    return SimpleNamespace(is_user_annotation=lambda: name.startswith("## "), **methods)


def profiled(*events):
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events)))


def test_the_pass_with_the_shorter_device_time_counts():
    long, short, empty = profiled(event("gemm", 1, 900)), profiled(event("gemm", 1, 300)), profiled()
    assert quieter([long, short], 1) is short
    assert quieter([short, long], 1) is short
    assert quieter([empty, long], 1) is long


def test_what_no_graph_launched_is_told_by_name():
    two_calls = [
        event("cudaGraphLaunch", 7, on_gpu=False),
        *(event("triton_poi_fused_0", 7, 300), event("gemm", 7, 500)),
        event("cudaLaunchKernel", 8, on_gpu=False),
        event("index_put", 8, 200),
        event("## Call CompiledFxGraph", 9, 5000),
    ] * 2
    found = graph_use(profiled(*two_calls), 2)
    assert (found.launches, found.share, found.kernels_outside) == (1, 0.8, 1)
    assert found.outside == [("index_put", 1, 0.0002)]


@pytest.mark.parametrize("name", ["cuLaunchKernelEx", "aten::cudaGraphLaunch_like"])
def test_without_a_graph_all_kernels_are_outside(name):
    found = graph_use(profiled(event(name, 3, on_gpu=False), event("gemm", 3, 500)), 1)
    assert (found.launches, found.share, found.kernels_outside) == (0, 0.0, 1)
    assert graph_use(profiled(event(name, 3, on_gpu=False)), 1) is None, "nothing ran on the device"


@pytest.mark.gpu
def test_a_program_with_cudagraphs_runs_in_them():
    program = torch.compile(lambda x: torch.relu(x @ x).sum(0), options={"triton.cudagraphs": True})
    x = torch.randn(512, 512, device="cuda")
    with torch.inference_mode():
        for _ in range(4):
            program(x)
        found = graph_use(record(lambda: program(x), 3, "cuda"), 3)
        eager = graph_use(record(lambda: torch.relu(x @ x), 3, "cuda"), 3)
    assert found.launches == 1
    assert found.share > 0.5
    assert found.kernels_outside <= 1, found.outside  # the input is copied to where the graph reads it
    assert (eager.launches, eager.share) == (0, 0.0)
    assert eager.kernels_outside >= 2
