"""What autotuning chose, as Inductor's own hooks tell it."""

from __future__ import annotations

import inspect
import sys
from collections import namedtuple
from contextlib import contextmanager
from functools import partial
from types import ModuleType

import pytest
import torch

from collector.measure import autotuning


class Launcher:
    def __init__(self, config):
        self.config = config


Candidate = namedtuple("Candidate", ["name", "description"])


@pytest.fixture
def autotuner(monkeypatch):
    """A class with the methods in which Inductor chooses a Triton kernel's configuration."""

    class Autotuner:
        def __init__(self, timings, better=None):
            self.timings, self.better = timings, better
            self.inductor_meta = {"kernel_name": "triton_poi_fused_0"}

        def benchmark_all_configs(self, *args):
            return self.timings

        def coordinate_descent_tuning(self, launcher, *args):
            return self.better or launcher

    monkeypatch.setattr(autotuning, "_choices", [])
    autotuning.watch_kernels(Autotuner)
    return Autotuner


def test_the_fastest_configuration_of_a_kernel_is_kept(autotuner):
    timings = {Launcher("XBLOCK: 64"): 0.5, Launcher("XBLOCK: 128"): 0.25, Launcher("XBLOCK: 256"): float("inf")}
    assert autotuner(timings).benchmark_all_configs("argument") is timings
    assert autotuning.results()["autotuned"] == [["triton_poi_fused_0", 3, "XBLOCK: 128", 0.25]]


def test_what_coordinate_descent_found_is_kept_if_it_is_another(autotuner):
    started, better = Launcher("XBLOCK: 64"), Launcher("XBLOCK: 32")
    assert autotuner({}).coordinate_descent_tuning(started, 1) is started
    assert autotuner({}).benchmark_all_configs() == {}  # what cannot be recorded breaks nothing
    assert autotuning.results() == {}
    assert autotuner({}, better).coordinate_descent_tuning(started, 1) is better
    assert autotuning.results()["autotuned"] == [["triton_poi_fused_0", 0, "XBLOCK: 32 (coordinate descent)", None]]


def test_the_winner_of_an_operation_is_kept(monkeypatch):
    monkeypatch.setattr(autotuning, "_choices", [])
    timings = {Candidate("triton_mm_3", "BLOCK_M=64"): 0.2, Candidate("mm", ""): 0.1, Candidate("no", ""): float("inf")}
    autotuning.note_operation(timings, "mm", [], list(timings), None)
    autotuning.note_operation({}, "addmm", [], [Candidate("addmm", "")])
    assert autotuning.results()["autotuned"] == [["mm", 3, "mm", 0.1]]


def test_equal_choices_have_equal_hashes_whatever_they_took(monkeypatch):
    hashes = []
    for ms, chosen in ((0.1, "a"), (0.2, "a"), (0.1, "b")):
        monkeypatch.setattr(autotuning, "_choices", [("mm", 3, chosen, ms)])
        hashes.append(autotuning.results()["autotuned_id"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_torch_tells_of_the_operations_it_tunes(monkeypatch):
    from torch._inductor import select_algorithm

    monkeypatch.setattr(autotuning, "_listening", False)
    monkeypatch.setattr(autotuning, "watch_kernels", lambda autotuner: None)
    autotuning.listen()
    try:
        told = select_algorithm.get_algorithm_selector_cache().feedback_saver_fns
        assert autotuning.note_operation in told
    finally:
        select_algorithm.clear_feedback_savers()
        monkeypatch.setattr(autotuning, "_listening", False)


def test_a_candidate_compiles_before_others_stand_still(monkeypatch):
    from torch._inductor.runtime import benchmarking

    happened, calls = [], []

    def benchmark_gpu(self, candidate, rep=0):
        candidate()
        return f"timed {rep}"

    @contextmanager
    def exclusive(purpose):
        happened.append(f"held to {purpose}")
        yield
        happened.append("given back")

    def candidate():
        happened.append("again" if calls else "compiles")
        calls.append(1)

    def broken():
        raise ValueError("no such configuration")

    for _, owner in inspect.getmembers(benchmarking, inspect.isclass):
        if "benchmark_gpu" in vars(owner):  # each is put back after the test
            monkeypatch.setattr(owner, "benchmark_gpu", benchmark_gpu)
    for name in ("runtime.triton_heuristics", "select_algorithm"):
        monkeypatch.setitem(sys.modules, f"torch._inductor.{name}", None)
    autotuning.hold_device_while_tuning(exclusive)
    timer = benchmarking.InductorBenchmarker()
    assert timer.benchmark_gpu(candidate, rep=3) == "timed 3"
    assert happened == [
        *("held to device", "compiles", "given back"),
        *("held to choose", "again", "given back"),
    ]
    with pytest.raises(ValueError, match="no such configuration"):
        timer.benchmark_gpu(broken)


def test_the_configurations_of_a_kernel_stop_no_compiler(monkeypatch):
    asked = []

    @contextmanager
    def exclusive(purpose):
        asked.append(purpose)
        yield

    benchmarking = ModuleType("torch._inductor.runtime.benchmarking")
    heuristics = ModuleType("torch._inductor.runtime.triton_heuristics")

    class Benchmarker:
        __module__ = benchmarking.__name__

        def benchmark_gpu(self, candidate):
            return candidate()

    class CachingAutotuner:
        __module__ = heuristics.__name__

        def benchmark_all_configs(self):
            return [Benchmarker().benchmark_gpu(lambda: 1.0)]

        def coordinate_descent_tuning(self):
            return Benchmarker().benchmark_gpu(lambda: 2.0)

    benchmarking.Benchmarker, heuristics.CachingAutotuner = Benchmarker, CachingAutotuner
    for module in (benchmarking, heuristics):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "torch._inductor.select_algorithm", None)
    autotuning.hold_device_while_tuning(exclusive)
    assert CachingAutotuner().benchmark_all_configs() == [1.0]
    assert asked == ["tune", "device", "tune"]
    asked.clear()
    assert CachingAutotuner().coordinate_descent_tuning() == 2.0
    assert asked == ["device", "tune"]
    asked.clear()
    assert Benchmarker().benchmark_gpu(lambda: 3.0) == 3.0
    assert asked == ["device", "choose"]


@pytest.mark.parametrize("is_broken", [False, True])
def test_candidates_of_an_operation_are_called_once_then_timed_in_one_hold(is_broken, monkeypatch):
    happened = []

    @contextmanager
    def exclusive(purpose):
        happened.append(purpose)
        yield
        happened.append(f"/{purpose}")

    benchmarking = ModuleType("torch._inductor.runtime.benchmarking")
    select = ModuleType("torch._inductor.select_algorithm")

    class Benchmarker:
        __module__ = benchmarking.__name__

        def benchmark_gpu(self, candidate):
            candidate()
            happened.append("timed")
            return 7.0

    def first_call(choice):
        happened.append(choice)
        if is_broken and happened.count(choice) == 1:
            raise ValueError(choice)

    class AlgorithmSelectorCache:
        __module__ = select.__name__

        @classmethod
        def benchmark_choices(cls, choices, scale=1):
            return {choice: scale * Benchmarker().benchmark_gpu(partial(first_call, choice)) for choice in choices}

    benchmarking.Benchmarker, select.AlgorithmSelectorCache = Benchmarker, AlgorithmSelectorCache
    for module in (benchmarking, select):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.triton_heuristics", None)
    autotuning.hold_device_while_tuning(exclusive)
    assert AlgorithmSelectorCache.benchmark_choices(["a", "b"], scale=2) == {"a": 14.0, "b": 14.0}
    outer = [event for event in happened[: happened.index("choose")] if event in ("a", "b", "timed")]
    assert outer == (["a"] if is_broken else ["a", "b"]), (
        "each is called where others may use the device, and not timed"
    )
    assert happened[happened.index("choose") :].count("timed") == 2
    assert happened[-1] == "/choose"


@pytest.mark.gpu
def test_a_tuned_product_and_a_tuned_kernel_are_seen(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    autotuning.listen()
    options = {"max_autotune": True, "coordinate_descent_tuning": True, "max_autotune_gemm_backends": "ATEN,TRITON"}
    program = torch.compile(lambda a, b: torch.softmax(a @ b, -1).sum(0), options=options)
    program(*(torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2)))
    found = autotuning.results()["autotuned"]
    assert any(what.startswith("mm") and candidates > 1 and ms > 0 for what, candidates, _, ms in found)
    assert any(what.startswith("triton_") for what, *_ in found)
