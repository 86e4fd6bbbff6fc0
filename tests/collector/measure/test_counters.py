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


def test_a_model_that_is_disabled_as_a_whole_is_not_compiled():
    found = ended(measured(lambda: Disabled(16, 4)), "no graph")
    assert found.failure.stage is Stage.COMPILE
    assert "compiled_ms" not in found.metrics
    # Neither a compiled loss nor a compiled optimizer stands for the model.
    training = {"phase": Phase.TRAINING, "config": INDUCTOR}
    ended(measured(lambda: Disabled(16, 4), replace(FEW, optimizer="sgd"), **training), "the loss alone was compiled")


def test_dynamo_switched_off_is_not_compiled(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        ended(measured(Breaks, phase=Phase.TRAINING), "switched off")
    with torch.compiler.set_stance("force_eager"):
        ended(measured(Breaks), "switched off")


@contextmanager
def failing(times):
    real, left = torch._inductor.graph.GraphLowering.run, [times]

    def run(self, *args):
        if left[0] > 0:
            left[0] -= 1
            raise RuntimeError("a lowering that fails")
        return real(self, *args)

    with pytest.MonkeyPatch.context() as patch, torch._dynamo.config.patch(suppress_errors=True):
        patch.setattr(torch._inductor.graph.GraphLowering, "run", run)
        yield


def test_errors_of_every_graph_that_are_suppressed_are_told():
    with failing(10_000):
        found = ended(measured(Breaks, phase=Phase.TRAINING, config=INDUCTOR), "a lowering that fails")
    assert found.metrics["fallbacks"] >= 1 and found.details["fallback_reasons"]


def test_some_graphs_left_to_eager_pass_and_are_counted():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ModuleList([Breaks(), Breaks()])

        def forward(self, x):
            torch._dynamo.graph_break()
            return self.inner[0](x) + self.inner[1](x)

    with failing(1):
        found = measured(Outer, config=INDUCTOR)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["fallbacks"] == 1
    assert "a lowering that fails" in found.details["fallback_reasons"][0]


def test_calls_behind_the_limit_of_recompilations_are_not_compiled():
    with torch._dynamo.config.patch(recompile_limit=2):
        found = ended(measured(lambda: Counts(16, 4)), "no longer called")
    assert found.metrics["fallbacks"] == 1 and found.metrics["graphs"] == 2


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(16, 4)

    def forward(self, x):
        return self.rnn(x)[0]


@pytest.mark.parametrize(("make", "said"), [(nn.Identity, "calls no operator"), (Recurrent, "an RNN of torch")])
def test_a_model_of_which_dynamo_compiles_nothing_is_not_compiled(make, said):
    ended(measured(make), said)
