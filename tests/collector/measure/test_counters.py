"""Models and settings under which nothing is compiled, or not all: they are no pass, and it is said why."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch._inductor.graph
from torch import nn

from collector.vocabulary import Phase, Stage, Status
from tests.collector.measure.tiny_cells import FEW, INDUCTOR, Breaks, measured


@pytest.fixture(autouse=True)
def _own_cache(own_cache):
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


class Disabled(nn.Linear):
    @torch.compiler.disable
    def forward(self, x):
        return super().forward(x).relu()


class Counts(nn.Linear):
    """Compiled again with each call, until Dynamo gives up."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) + self.calls * 0.0


def ended(found, said):
    assert (found.status, found.failure.exception) == (Status.NOT_COMPILED, "NotCompiledError"), found.failure
    assert said in found.failure.message
    return found


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(16, 4)

    def forward(self, x):
        return self.rnn(x)[0]


def test_a_model_of_which_dynamo_compiles_nothing_is_not_compiled(monkeypatch):
    ended(measured(nn.Identity), "calls no operator")
    ended(measured(Recurrent), "an RNN of torch")
    found = ended(measured(lambda: Disabled(16, 4)), "no graph")
    assert found.failure.stage is Stage.COMPILE
    assert "compiled_ms" not in found.metrics
    # Neither a compiled loss nor a compiled optimizer stands for the model.
    training = {"phase": Phase.TRAINING, "config": INDUCTOR}
    ended(measured(lambda: Disabled(16, 4), replace(FEW, optimizer="sgd"), **training), "the loss alone was compiled")
    with torch.compiler.set_stance("force_eager"):
        ended(measured(Breaks), "switched off")
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    ended(measured(Breaks, phase=Phase.TRAINING), "switched off")


@contextmanager
def failing(times):
    """Have Inductor fail so many times, with errors that Dynamo suppresses."""
    real, left = torch._inductor.graph.GraphLowering.run, ["a lowering that fails"] * times

    def run(self, *args):
        if left:
            raise RuntimeError(left.pop())
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch, torch._dynamo.config.patch(suppress_errors=True):
        patch.setattr(torch._inductor.graph.GraphLowering, "run", run)
        yield


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList([Breaks(), Breaks()])

    def forward(self, x):
        torch._dynamo.graph_break()
        return self.inner[0](x) + self.inner[1](x)


def test_suppressed_errors_of_some_graphs_are_counted_and_of_all_fail():
    with failing(1):
        found = measured(Outer, config=INDUCTOR)
    assert (found.status, found.failure, found.metrics["fallbacks"]) == (Status.PASS, None, 1)
    assert "a lowering that fails" in found.details["fallback_reasons"][0]
    with failing(10_000):
        found = ended(measured(Breaks, phase=Phase.TRAINING, config=INDUCTOR), "a lowering that fails")
    assert found.metrics["fallbacks"] >= 1 and found.details["fallback_reasons"]


def test_calls_behind_the_limit_of_recompilations_are_not_compiled():
    with torch._dynamo.config.patch(recompile_limit=2):
        found = ended(measured(lambda: Counts(16, 4)), "no longer called")
    assert found.metrics["fallbacks"] == 1 and found.metrics["graphs"] == 2
