"""A training step is compared in its outputs and in the gradients of its inputs, not in loss and weights alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collector.measure.program import Subject, seed_everything
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.spec import Built
from tests.collector.correctness.test_checking import EAGER, checked, outcome_of


class Scores(nn.Module):
    """Returns a loss and scores; compiled, the scores are off by a factor and the loss is right."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.linear, self.factor = nn.Linear(32, 16), factor

    def forward(self, x):
        scores = self.linear(x)
        loss = scores.float().square().mean()
        return {"loss": loss, "scores": scores * self.factor if torch.compiler.is_compiling() else scores * 1.0}


def stepped(model, inputs=None, dtype="float32", config=EAGER):
    seed_everything()
    cell = Cell("tests", "tiny", Phase.TRAINING, dtype, "cpu", 8, config)
    x = torch.randn(64, 32) if inputs is None else inputs
    subject = Subject(cell, Built(model, (x,), {}, lambda out, _: out["loss"] if isinstance(out, dict) else out.sum()))
    effective = resolve_config(config, "cpu")
    return outcome_of(cell, subject, subject.compiled(effective), effective), subject


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "amp"])
@pytest.mark.parametrize(
    ("factor", "status"), [(1.0, Status.PASS), (100.0, Status.FAIL_ACCURACY), (1.1, Status.FAIL_ACCURACY)]
)
def test_scores_beside_a_right_loss_are_compared(factor, status, dtype):
    found, _ = stepped(Scores(factor), dtype=dtype)
    assert found.status is status
    assert status is Status.PASS or "output[1]" in found.failure.message


class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Inputs(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.linear, self.factor = nn.Linear(32, 16), factor

    def forward(self, x):
        x = Gradient.apply(x, self.factor if torch.compiler.is_compiling() else 1.0)
        return self.linear(x).square()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (3.0, Status.FAIL_ACCURACY)])
def test_the_gradient_of_an_input_that_asks_for_one_is_compared(factor, status, dtype):
    found, subject = stepped(Inputs(factor), torch.randn(64, 32, requires_grad=True), dtype)
    assert found.status is status
    assert status is Status.PASS or found.failure.message.startswith("grad['input 0']")
    assert found.details["checked_by"] == "float64" or status is not Status.PASS
    (x,) = subject.inputs.args
    assert x.is_leaf and x.requires_grad and x.grad is None


def test_inputs_that_ask_for_no_gradient_get_none():
    found, subject = stepped(Inputs(3.0))
    assert found.status is Status.PASS
    assert subject.inputs.args[0].grad is None


@pytest.mark.parametrize("grads", [False, True])
def test_steps_compiled_by_inductor_are_compared_in_all_of_that(grads, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        found, _ = stepped(Scores(), torch.randn(64, 32, requires_grad=grads), config=Config(template="triton"))
    assert (found.status, found.failure) == (Status.PASS, None)
    # The loss, which is an output too, the scores, two weights, and the input.
    assert found.details["tensors_compared"] == 5 + grads


def test_outputs_cost_no_gradient_and_nothing_is_kept_between_steps():
    model = Scores()
    cell = Cell("tests", "tiny", Phase.TRAINING, "float32", "cpu", 8, EAGER)
    subject = Subject(cell, Built(model, (torch.randn(64, 32),), {}, lambda out, _: out["loss"]))
    _, outputs = subject._loss_of(*subject.inputs.args)
    assert not any(output.requires_grad for output in outputs)
    subject.outputs(subject.eager)
    subject.eager()
    assert subject._made == []
    assert checked(nn.Linear(32, 4), Phase.TRAINING).failure is None
