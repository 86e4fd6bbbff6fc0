"""A second compilation in a new process that finds the caches of the first full."""

import json
import subprocess
import sys
import types
from dataclasses import replace

import pytest
import torch

from collector.measure import program
from collector.measure.warm import NoWarmCompileError, WarmCompile, compile_again, warm_compile
from collector.process.launcher import Preload
from collector.settings import BackendFlags, Settings
from collector.vocabulary import Cell, Config, Phase, Status
from tests.collector.processes import pooled

CELL = Cell("user", "tests.collector.zoo.faulty:healthy", Phase.TRAINING, "float32", "cpu", 4, Config(backend="eager"))


def answering(monkeypatch, text="", error=None):
    requests = []

    def run(command, **options):
        requests.append((command, json.loads(options["input"]), options["timeout"]))
        if error:
            raise error
        return types.SimpleNamespace(stdout=text)

    monkeypatch.setattr(subprocess, "run", run)
    return requests


def test_the_process_is_told_what_it_needs_and_no_result_is_a_line(monkeypatch, tmp_path):
    generated, without_spec = types.ModuleType("torch._generated_program"), types.ModuleType("torch._no_spec")
    generated.__spec__ = types.SimpleNamespace(origin=str(tmp_path / "gone.py"))
    for module in (generated, without_spec):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    requests = answering(monkeypatch, 'the model prints\n{"seconds": 1.5, "window": [1, 3], "cache_hits": 2}\n')
    settings = Settings(timeout_s=30, optimizer="adam", flags=BackendFlags(cudnn_benchmark=True))
    assert compile_again(CELL, settings) == WarmCompile(1.5, (1, 3), 2)
    ((command, request, timeout_s),) = requests
    assert (command, timeout_s) == ([sys.executable, "-m", "collector.measure.warm"], 30)
    assert (Cell.from_json(request["cell"]), Settings.from_json(request["settings"])) == (CELL, settings)
    assert torch.__name__ in request["modules"]
    assert not {generated.__name__, without_spec.__name__} & set(request["modules"])
    for text, error in [("", None), ("{}\n", None), ("", subprocess.TimeoutExpired("python", 30))]:
        answering(monkeypatch, text, error)
        with pytest.raises(NoWarmCompileError) as failed:
            compile_again(CELL, Settings(timeout_s=30))
        assert "\n" not in str(failed.value)


def test_the_first_call_of_the_same_step_is_timed_less_a_later_one(monkeypatch):
    torch._dynamo.utils.counters.clear()  # of other tests in this process
    steps = []
    made = program._optimizer
    monkeypatch.setattr(program, "_optimizer", lambda name, *rest: steps.append(name) or made(name, *rest))
    found = warm_compile(CELL, Settings(optimizer="adam"))
    begin, end = found.window
    assert 0 <= found.seconds <= end - begin  # a busy machine may make the later call the slower one
    assert found.cache_hits == 0  # this back-end keeps nothing
    assert steps == ["adam"]


@pytest.mark.slow
def test_a_cell_that_asks_for_it_has_a_warm_compile_time():
    cell = replace(CELL, config=Config())
    settings = Settings(rounds=5, warm_compile=True, optimizer="adam")
    (outcome,) = pooled([cell], settings, preload=Preload("cpu"))
    found = outcome.measurement
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["compile_warm_s"] > 0
    # The forward and backward graph, and Adam's step.
    assert found.details["warm_cache_hits"] >= 2
