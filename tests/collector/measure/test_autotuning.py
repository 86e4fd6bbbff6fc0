"""What autotuning chose, as Inductor's own hooks tell it, and for what the device is held meanwhile."""

import inspect
import sys
from collections import namedtuple
from contextlib import contextmanager
from functools import partial
from types import ModuleType

import pytest
import torch

from collector.measure import autotuning

Launcher = namedtuple("Launcher", ["config"])
Candidate = namedtuple("Candidate", ["name", "description"])


def test_the_fastest_configuration_and_the_winner_are_kept(monkeypatch):
    class Autotuner:
        """With the methods in which Inductor chooses a Triton kernel's configuration."""

        def __init__(self, timings, better=None):
            self.timings, self.better = timings, better
            self.inductor_meta = {"kernel_name": "triton_poi_fused_0"}

        def benchmark_all_configs(self, *args):
            return self.timings

        def coordinate_descent_tuning(self, launcher, *args):
            return self.better or launcher

    monkeypatch.setattr(autotuning, "_choices", [])
    autotuning.watch_kernels(Autotuner)
    started, better = Launcher("XBLOCK: 64"), Launcher("XBLOCK: 32")
    assert Autotuner({}).coordinate_descent_tuning(started, 1) is started
    assert Autotuner({}).benchmark_all_configs() == {}  # what cannot be recorded breaks nothing
    assert autotuning.results() == {}
    assert Autotuner({}, better).coordinate_descent_tuning(started, 1) is better
    timings = {Launcher("XBLOCK: 64"): 0.5, Launcher("XBLOCK: 128"): 0.25, Launcher("XBLOCK: 256"): float("inf")}
    assert Autotuner(timings).benchmark_all_configs("argument") is timings
    assert autotuning.results()["autotuned"] == [
        ["triton_poi_fused_0", 0, "XBLOCK: 32 (coordinate descent)", None],
        ["triton_poi_fused_0", 3, "XBLOCK: 128", 0.25],
    ]
    monkeypatch.setattr(autotuning, "_choices", [])
    timings = {Candidate("triton_mm_3", "BLOCK_M=64"): 0.2, Candidate("mm", ""): 0.1, Candidate("no", ""): float("inf")}
    autotuning.note_operation(timings, "mm", [], list(timings), None)
    autotuning.note_operation({}, "addmm", [], [Candidate("addmm", "")])
    found = autotuning.results()
    assert found["autotuned"] == [["mm", 3, "mm", 0.1]]
    for ms, chosen in ((0.2, "mm"), (0.1, "b")):
        monkeypatch.setattr(autotuning, "_choices", [("mm", 3, chosen, ms)])
        is_same = autotuning.results()["autotuned_id"] == found["autotuned_id"]
        assert is_same == (chosen == "mm"), "equal choices have equal hashes whatever they took"
    from torch._inductor import select_algorithm

    monkeypatch.setattr(autotuning, "_listening", False)
    monkeypatch.setattr(autotuning, "watch_kernels", lambda autotuner: None)
    monkeypatch.setattr(select_algorithm.get_algorithm_selector_cache(), "feedback_saver_fns", told := [])
    autotuning.listen()
    assert autotuning.note_operation in told


@pytest.fixture
def held(monkeypatch):
    """Fakes of Inductor's classes whose holds of the device are noted: each purpose, and `/purpose` at its end."""

    class Held(list):
        @contextmanager
        def exclusive(self, purpose):
            self.append(purpose)
            yield
            self.append(f"/{purpose}")

        @contextmanager
        def released(self):
            self.append("released")
            yield
            self.append("/released")

        def fake(self, **modules):
            runtime = ("benchmarking", "triton_heuristics", "coordinate_descent_tuner")
            for name in (*(f"runtime.{name}" for name in runtime), "select_algorithm"):
                module, kind = ModuleType(f"torch._inductor.{name}"), modules.get(name.rpartition(".")[2])
                if kind:
                    kind.__module__ = module.__name__
                    setattr(module, kind.__name__, kind)
                monkeypatch.setitem(sys.modules, module.__name__, module if kind else None)
            autotuning.hold_device_while_tuning(self.exclusive, self.released)

    return Held()


def benchmarker(note=lambda made: None):
    class Benchmarker:
        def benchmark_gpu(self, candidate, rep=0):
            made = candidate()
            note("timed")
            return made

    return Benchmarker


def test_a_candidate_compiles_before_others_stand_still(held, monkeypatch):
    from torch._inductor.runtime import benchmarking

    held.fake()
    monkeypatch.setitem(sys.modules, benchmarking.__name__, benchmarking)  # torch's own
    for _, kind in inspect.getmembers(benchmarking, inspect.isclass):
        if "benchmark_gpu" in vars(kind):
            monkeypatch.setattr(kind, "benchmark_gpu", vars(benchmarker())["benchmark_gpu"])
    autotuning.hold_device_while_tuning(held.exclusive)
    timer = benchmarking.InductorBenchmarker()
    assert timer.benchmark_gpu(lambda: held.append("called") or 3, rep=3) == 3
    assert held == ["device", "called", "/device", "choose", "called", "/choose"]
    with pytest.raises(ZeroDivisionError):
        timer.benchmark_gpu(lambda: 1 / 0)


def test_the_configurations_of_a_kernel_stop_no_compiler(held):
    kind = benchmarker()

    class CachingAutotuner:
        def benchmark_all_configs(self):
            return [kind().benchmark_gpu(lambda: 1.0)]

        def coordinate_descent_tuning(self):
            return CoordescTuner().autotune(lambda: kind().benchmark_gpu(lambda: 2.0))

    class CoordescTuner:
        def autotune(self, time_one):
            return time_one()

    held.fake(benchmarking=kind, triton_heuristics=CachingAutotuner, coordinate_descent_tuner=CoordescTuner)
    assert CachingAutotuner().benchmark_all_configs() == [1.0]
    assert [event for event in held if event[0] != "/"] == ["tune", "tune"]
    held.clear()
    assert CachingAutotuner().coordinate_descent_tuning() == 2.0
    # What it compiles holds the device for no time, and what was compiled is not called before it is timed.
    assert held == ["released", "tune", "/tune", "/released"]


class TritonTemplateCaller(str):
    """A candidate that is a kernel of Triton, by its name."""


@pytest.mark.parametrize("is_broken", [False, True])
def test_of_candidates_the_librarys_alone_stop_all_others(is_broken, held):
    kind = benchmarker(held.append)

    def first_call(choice):
        held.append(str(choice))
        if is_broken and held.count(choice) == 1:
            raise ValueError(choice)
        return 7.0

    class AlgorithmSelectorCache:
        @classmethod
        def benchmark_choice(cls, choice, scale):
            return scale * kind().benchmark_gpu(partial(first_call, choice))

        @classmethod
        def benchmark_choices(cls, choices, scale=1):
            return {str(choice): cls.benchmark_choice(choice, scale) for choice in choices}

    held.fake(benchmarking=kind, select_algorithm=AlgorithmSelectorCache)
    choices = ["library", TritonTemplateCaller("kernel")]
    assert AlgorithmSelectorCache.benchmark_choices(choices, scale=2) == {"library": 14.0, "kernel": 14.0}
    begun = held.index("tune")
    # Each is called where others may use the device, and not timed.
    called = [event for event in held[:begun] if event in ("library", "kernel", "timed")]
    assert called == (["library"] if is_broken else ["library", "kernel"])
    alone, timed = "", {}
    for event in held[begun:]:
        if event in ("tune", "choose"):
            alone = event
        elif event in ("library", "kernel"):
            timed[event] = alone
    assert timed == {"library": "choose", "kernel": "tune"}
    assert (held[begun:].count("timed"), held[-1]) == (2, "/tune")


@pytest.mark.gpu
def test_a_tuned_product_and_a_tuned_kernel_are_seen(own_cache):
    autotuning.listen()
    options = {"max_autotune": True, "coordinate_descent_tuning": True, "max_autotune_gemm_backends": "ATEN,TRITON"}
    program = torch.compile(lambda a, b: torch.softmax(a @ b, -1).sum(0), options=options)
    program(*(torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2)))
    found = autotuning.results()["autotuned"]
    assert any(what.startswith("mm") and candidates > 1 and ms > 0 for what, candidates, _, ms in found)
    assert any(what.startswith("triton_") for what, *_ in found)
