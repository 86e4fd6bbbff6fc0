"""What of a first compiled call is tuning, by fakes of Inductor's functions, by a real choice on a CPU, and on a GPU."""

import os
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from collector.measure import tuning
from collector.measure.tuning import recorded, watch
from collector.process.outcome import gaps, merged, union_length
from collector.vocabulary import Config, Status
from collector.zoo.spec import Built
from tests.collector.measure.tiny_cells import CELL, FEW, mean_square, measured_apart


class Clock:
    """The clock of the fakes, each of which takes a second."""

    now = 0.0

    @classmethod
    def monotonic(cls):
        return cls.now

    @classmethod
    def step(cls):
        cls.now += 1.0


class CachingAutotuner:
    def __init__(self, configurations=1):
        self.compile_results = [object()] * configurations

    def precompile(self):
        Clock.step()

    def benchmark_all_configs(self):
        Benchmarker().benchmark(None)

    def coordinate_descent_tuning(self):
        Clock.step()
        raise RuntimeError("no configuration compiles")


class Benchmarker:
    def benchmark(self, candidate):
        Clock.step()


class LambdaFuture:
    def __init__(self, kernel):
        self.kernel = kernel

    def result(self, timeout=None):
        Clock.step()
        return self.kernel


class AsyncCompile:
    def wait(self, futures):
        return [future.result() for future in futures]


class MultiTemplateBuffer:
    choice_timings = property(lambda self: {})  # a torch of which this is no method


@pytest.fixture
def inductor(monkeypatch):
    """Inductor's modules with fakes of what is wrapped; of what is not here no more is known than its name."""
    fakes = {
        "runtime.benchmarking": (Benchmarker,),
        "runtime.triton_heuristics": (CachingAutotuner,),
        "codecache": (LambdaFuture,),
        "async_compile": (AsyncCompile,),
        "ir": (MultiTemplateBuffer,),
        **dict.fromkeys(("select_algorithm", "scheduler"), ()),
    }
    wrapped = {"precompile", "benchmark_all_configs", "coordinate_descent_tuning", "benchmark", "wait", "result"}
    for name, classes in fakes.items():
        module = ModuleType(f"torch._inductor.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        for each in classes:
            monkeypatch.setattr(module, each.__name__, each, raising=False)
            for method in wrapped & vars(each).keys():
                monkeypatch.setattr(each, method, vars(each)[method])  # what is wrapped is put back
    monkeypatch.setattr(tuning, "_is_watching", False)
    monkeypatch.setattr(tuning, "time", Clock)
    watch()


def spent_s(action):
    with recorded() as tuning:
        action()
    return union_length(tuning.spans)


@pytest.mark.usefixtures("inductor")
def test_a_choice_counts_once_and_also_where_it_fails():
    tuner = CachingAutotuner()
    assert spent_s(tuner.benchmark_all_configs) == pytest.approx(1)
    with pytest.raises(RuntimeError, match="no configuration"), recorded() as tuning:
        tuner.coordinate_descent_tuning()
    tuner.benchmark_all_configs()  # after the first call: nobody records
    assert union_length(tuning.spans) == pytest.approx(1)
    spans, window = [(5.0, 6.0), (0.0, 2.0), (1.5, 3.0), (9.0, 12.0)], (1.0, 10.0)
    assert merged(spans, window) == [(1.0, 3.0), (5.0, 6.0), (9.0, 10.0)], "they are cut to the call"
    assert gaps(spans, window) == [(3.0, 5.0), (6.0, 9.0)], "this is left of the compilation"
    assert gaps([], window) == [window]


@pytest.mark.usefixtures("inductor")
def test_what_is_chosen_among_is_compiled_where_other_cells_find_it(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/of/this/cell")
    compiled = []
    monkeypatch.setattr(Clock, "step", lambda: compiled.append(os.environ["TRITON_CACHE_DIR"]))
    with recorded(Path("/of/all/cells")):
        CachingAutotuner().benchmark_all_configs()
        CachingAutotuner().precompile()  # a kernel of the program
        for measure in (CachingAutotuner().benchmark_all_configs, CachingAutotuner().precompile):
            thread = threading.Thread(target=measure)
            thread.start()
            thread.join()
    CachingAutotuner().benchmark_all_configs()
    assert compiled == ["/of/all/cells", *["/of/this/cell"] * 4]


@pytest.mark.usefixtures("inductor")
@pytest.mark.parametrize(("configurations", "share"), [(1, 0.0), (5, 0.8)])
def test_of_a_kernel_all_configurations_but_one_are_candidates(configurations, share):
    kernel, other = CachingAutotuner(configurations), LambdaFuture("a C++ kernel")
    assert spent_s(kernel.precompile) == pytest.approx(share)
    assert spent_s(lambda: AsyncCompile().wait([LambdaFuture(kernel), other])) == pytest.approx(share)
    assert spent_s(LambdaFuture(kernel).result) == pytest.approx(1), "it is awaited before the program is done"
    assert spent_s(other.result) == 0.0


class Products(nn.Module):
    def forward(self, x, y):
        return torch.softmax(x @ y, -1)


def build(batch_size, phase, device):
    return Built(Products(), (torch.randn(4, 64, 128), torch.randn(4, 128, 96)), {}, mean_square)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_who_tunes_compiles_as_long_as_who_finds_the_choices(device, tmp_path, monkeypatch):
    cell = replace(CELL, device=device, config=Config(template="max_autotune"))
    outcomes = []
    for _ in range(2):  # with empty caches, and the choices of the process before
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(dir=tmp_path))
        outcomes.append(measured_apart(cell, build, replace(FEW, shared_tuning=str(tmp_path / "shared"))))
    tuned, found = (outcome.measurement for outcome in outcomes)
    assert (tuned.status, found.status) == (Status.PASS, Status.PASS)
    new, nothing = (one.details["shared_tuning"]["operations_new"] for one in (tuned, found))
    assert new > 0 == nothing
    # On a GPU what is fused behind a product is timed once more, which no torch keeps.
    assert tuned.metrics["tuning_s"] > max(1, (2 if device == "cpu" else 1) * found.metrics["tuning_s"])
    assert 0.5 < tuned.metrics["compile_cold_s"] / found.metrics["compile_cold_s"] < 2
    whole_s = sum(union_length(outcomes[0].compile_windows[name]) for name in ("compile_cold_s", "tuning_s"))
    assert tuned.metrics["compile_cold_s"] + tuned.metrics["tuning_s"] == pytest.approx(whole_s, rel=0.05)
