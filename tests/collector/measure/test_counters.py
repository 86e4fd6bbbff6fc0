"""Models and settings under which nothing is compiled, or not all: they are no pass, and it is said why."""

from contextlib import contextmanager

import pytest
import torch
import torch._inductor.graph
from torch import nn

from collector.measure.cell import measure
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Stage, Status
from collector.zoo.spec import Built

INDUCTOR, EAGER = Config(template="triton"), Config(backend="eager")


@pytest.fixture(autouse=True)
def _own_cache(own_cache):
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def measured(model, phase=Phase.INFERENCE, config=EAGER, optimizer="none"):
    def build(batch_size, phase, device):
        return Built(model, (torch.randn(batch_size, 8),), {}, lambda out, _: out.float().square().mean())

    cell = Cell("tests", "tiny", phase, "float32", "cpu", 4, config)
    return measure(cell, build, Settings(rounds=3, warmups=1, sample_limit_s=2, optimizer=optimizer)).measurement


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.last(x)


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
    found = ended(measured(Disabled(8, 4)), "no graph")
    assert found.failure.stage is Stage.COMPILE
    assert "compiled_ms" not in found.metrics
    # Neither a compiled loss nor a compiled optimizer stands for the model.
    ended(measured(Disabled(8, 4), Phase.TRAINING, INDUCTOR, "sgd"), "the loss alone was compiled")


def test_dynamo_switched_off_is_not_compiled(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        ended(measured(Breaks(), Phase.TRAINING), "switched off")
    with torch.compiler.set_stance("force_eager"):
        ended(measured(Breaks()), "switched off")


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
        found = ended(measured(Breaks(), Phase.TRAINING, INDUCTOR), "a lowering that fails")
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
        found = measured(Outer(), config=INDUCTOR)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["fallbacks"] == 1
    assert "a lowering that fails" in found.details["fallback_reasons"][0]


def test_calls_behind_the_limit_of_recompilations_are_not_compiled():
    with torch._dynamo.config.patch(recompile_limit=2):
        found = ended(measured(Counts(8, 4)), "no longer called")
    assert found.metrics["fallbacks"] == 1 and found.metrics["graphs"] == 2


def test_a_model_without_an_operator_has_nothing_to_compile():
    ended(measured(nn.Identity()), "calls no operator")


def test_an_rnn_that_dynamo_leaves_alone_is_not_compiled():
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(8, 4)

        def forward(self, x):
            return self.rnn(x)[0]

    ended(measured(Returns()), "an RNN of torch")
