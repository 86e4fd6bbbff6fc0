"""Samples on a fake clock, intervals of medians, drift, instruction counts, and what a profile becomes."""

import random
import sys
import types
from types import SimpleNamespace

import pytest
import torch

from collector.measure import timing
from collector.measure.host_time import CALL
from collector.measure.timing import Pass, Profile, drift, graph_use, interleaved, quietest_call


@pytest.fixture
def took(monkeypatch):
    """Each call takes what it returns, in seconds, on a clock that nothing else moves."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def of(seconds):
        left = list(seconds)

        def call():
            now[0] += left.pop(0) if len(left) > 1 else left[0]

        return call

    return of


@pytest.mark.parametrize(
    ("compiled", "rounds"), [([0.004, 0.002, 0.001, 0.001, 0.001], 5), ([0.2], 1), ([0.001, 0.002] * 100, 32)]
)
def test_calls_go_on_until_three_agree_or_the_time_is_spent(took, compiled, rounds):
    assert timing.settle(took([0.0001]), took(compiled), "cpu") == rounds


@pytest.mark.parametrize(
    ("eager", "compiled", "limits", "rounds"),
    [
        ([0.001, 0.5, 0.1], [0.001], (8, 60), 8),
        # With a precision rounds go on in tens while either median is not known to it.
        ([0.001], [0.001], (30, 60, 0.01), 30),
        ([0.001], [0.001, 0.002] * 200, (30, 60, 0.01), 300),
        ([0.001, 0.002] * 15 + [0.002] * 300, [0.001], (30, 60, 0.01), 50),
        # The limit in seconds ends it, but not before five pairs.
        ([1.0], [1.0], (30, 3.0, 0.01), 5),
    ],
)
def test_there_are_as_many_rounds_as_asked_or_as_the_precision_needs(took, eager, compiled, limits, rounds):
    assert len(interleaved((took(eager), took(compiled)), "cpu", *limits)[0].ms) == rounds


def test_a_call_may_be_left_out_of_rounds_and_waits_for_the_device(took, monkeypatch):
    eager, compiled = interleaved((took([0.001, 0.003, 0.005]), took([0.001])), "cpu", 5, 60, every=(2, 1))
    assert (len(eager.ms), len(compiled.ms)) == (3, 5), "those left out are spread over all rounds"
    finish = took([0.0, 0.004])
    monkeypatch.setattr(timing, "device_named", lambda _: SimpleNamespace(synchronize=finish))
    assert timing.call_time(took([0.001]), "cuda") == pytest.approx((0.005, 0.001)), "it returns before that"


def test_intervals_cover_the_median_and_a_level_that_moves_is_seen():
    drawn = random.Random(7)
    inside = 0
    for _ in range(2000):
        samples = sorted(drawn.lognormvariate(0, 0.1) for _ in range(30))
        width = timing.relative_half_width(samples)
        low, high = samples[9], samples[20]  # number 10 and 21: (30 - 10.7) / 2 and 1 + (30 + 10.7) / 2, rounded
        middle = (samples[14] + samples[15]) / 2
        assert width == pytest.approx((high - low) / 2 / middle)
        inside += low <= 1 <= high
    assert inside / 2000 == pytest.approx(0.957, abs=0.015)  # P(10 <= Binomial(30, 1/2) <= 20)
    for samples, expected in (([1.0] * 5, None), ([0.0] * 10, None), ([2.0] * 6, 0)):
        assert timing.relative_half_width(samples) == drift(samples) == expected
    assert drift([1.0] * 10 + [1.05] * 10 + [1.1] * 10) == pytest.approx(0.1)
    assert drift([2.0, 1.9, 1.5, 1.0, 1.0, 1.0]) == pytest.approx(1 / 1.95 - 1)


@pytest.mark.parametrize(("start", "end", "count"), [(4, 123_456, 123_456), (-1, 5, None), (4, 2**64 - 1, None)])
def test_the_count_comes_with_what_was_returned_unless_it_is_forbidden(monkeypatch, start, end, count):
    module = types.ModuleType("_instruction_counter")
    module.start, module.end = lambda: start, lambda number: end
    monkeypatch.setitem(sys.modules, "torch._C._instruction_counter", module)
    monkeypatch.setattr("torch._C._instruction_counter", module, raising=False)
    assert timing.counted(lambda: 2.5) == (2.5, count)
    with pytest.raises(ZeroDivisionError):  # what is counted may fail
        timing.counted(lambda: 1 / 0)


def made_of(*events, calls=1):
    """A pass of events: a name, a correlation, nanoseconds, whether it is one of the GPU, and its start."""

    def event(name, correlation, ns=0, on_gpu=True, start=0):
        device = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
        facts = {
            "name": name,
            "correlation_id": correlation,
            "start_ns": start,
            "duration_ns": ns,
            "device_type": device,
        }
        methods = {key: lambda value=value: value for key, value in facts.items()}
        return SimpleNamespace(is_user_annotation=lambda: name.startswith("## "), **methods)

    return Pass([event(*facts) for facts in events], calls)


def pass_of(*calls):
    """A pass of calls 100 ms apart; a call has (start, milliseconds) of each of its kernels."""
    events = []
    for at, kernels in enumerate(calls):
        begin = at * 100_000_000
        events.append((CALL, 0, 1_000_000, False, begin))
        events += [("gemm", 1, int(1e6 * ms), True, begin + int(1e6 * start)) for start, ms in kernels]
    return made_of(*events, calls=len(calls))


def test_the_device_time_is_that_of_the_quietest_call_of_all_passes():
    quiet, hit, overlapping = [(1, 2), (4, 2)], [(1, 2), (4, 2.4)], [(1, 2), (2, 2)]
    for passes, ms, launches in [
        ([pass_of(hit, quiet, hit), pass_of(hit, hit, hit)], 4.0, 2),
        ([pass_of(hit, hit), pass_of(hit, hit)], 4.4, 2),
        ([pass_of(quiet, overlapping)], 3.0, 2),
        ([pass_of(quiet, [(1, 3)])], 3.0, 1),  # another number of kernels
        ([pass_of([]), pass_of(quiet)], 4.0, 2),
        ([pass_of([(-0.05, 2), (4, 2)], hit)], 4.0, 2),  # the device's clock is early
        ([pass_of(hit, [(1, 2.3), (4, 2)])], 4.0, 2),  # each call was hit, each time another kernel
        ([pass_of(hit, [(1, 2.3), (4, 2), (7, 1)])], 4.4, 2),
    ]:
        found = timing.device_time(quietest_call(passes))
        assert (found.busy_ms, found.kernels[0][1]) == (pytest.approx(ms), launches)
    assert timing.device_time(quietest_call([pass_of([]), made_of()])) is None


def test_the_passes_of_a_profile_have_their_own_events():
    x = torch.ones(4)
    with Profile("cpu") as profile:
        for call in (x.sin, x.cos, x.sin):
            profile.record(call, 2)
        x.tan()
    called = [[span.name for span in timing.host_spans(one) if "aten" in span.name] for one in profile.passes()]
    assert called == [["aten::sin"] * 2, ["aten::cos"] * 2, ["aten::sin"] * 2]
    assert timing.device_time(profile.passes()[0]) is None
    one = quietest_call(profile.passes()[1:2])
    assert [span.name for span in timing.host_spans(one) if "aten" in span.name] == ["aten::cos"], (
        "the first of equal ones"
    )


def test_what_no_graph_launched_is_told_by_name():
    two_calls = [
        ("cudaGraphLaunch", 7, 0, False),
        *(("triton_poi_fused_0", 7, 300), ("gemm", 7, 500)),
        ("cudaLaunchKernel", 8, 0, False),
        ("index_put", 8, 200),
        ("## Call CompiledFxGraph", 9, 5000),
    ] * 2
    found = graph_use(made_of(*two_calls, calls=2))
    assert (found.launches, found.share, found.kernels_outside) == (1, 0.8, 1)
    assert found.outside == [("index_put", 1, 0.0002)]
    for name in ("cuLaunchKernelEx", "aten::cudaGraphLaunch_like"):
        without = graph_use(made_of((name, 3, 0, False), ("gemm", 3, 500)))
        assert (without.launches, without.share, without.kernels_outside) == (0, 0.0, 1)
    assert graph_use(made_of(("cuLaunchKernelEx", 3, 0, False))) is None, "nothing ran on the device"
