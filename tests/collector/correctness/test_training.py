"""A training step is compared in its outputs and in the gradients of its inputs, not in loss and weights alone."""

import pytest
import torch
from torch import nn

from collector.vocabulary import Phase, Status
from tests.collector.correctness.test_checking import Does, outcome_of, subject_of


def factored(function):
    """A model that calls a function with a factor where it is compiled, and with 1 in eager."""

    def make(factor=1.0):
        return Does(function, lambda model, x: function(model, x, factor), linear=nn.Linear(32, 16))

    return make


@factored
def scoring(model, x, factor=1.0):
    """Returns a right loss, and scores that are off by the factor."""
    scores = model.linear(x)
    return {"loss": scores.float().square().mean(), "scores": scores * factor}


def loss_of(out, _):
    return out["loss"] if isinstance(out, dict) else out.sum()


def stepped(model, inputs=None, dtype="float32"):
    subject = subject_of(model, Phase.TRAINING, dtype, inputs=inputs, loss=loss_of)
    found = outcome_of(subject)
    assert subject.inputs.args[0].grad is None
    return found


@pytest.mark.parametrize(
    ("factor", "status", "dtype"),
    [(1.0, Status.PASS, "bfloat16"), (100.0, Status.FAIL_ACCURACY, "amp"), (1.1, Status.FAIL_ACCURACY, "float32")],
)
def test_scores_beside_a_right_loss_are_compared(factor, status, dtype):
    found = stepped(scoring(factor), dtype=dtype)
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


@factored
def squaring(model, x, factor=1.0):
    """Multiplies the gradient of its input by the factor."""
    return model.linear(Gradient.apply(x, factor)).square()


@pytest.mark.parametrize(
    ("factor", "status", "dtype"), [(1.0, Status.PASS, "bfloat16"), (3.0, Status.FAIL_ACCURACY, "float32")]
)
def test_the_gradient_of_an_input_that_asks_for_one_is_compared(factor, status, dtype):
    found = stepped(squaring(factor), torch.randn(64, 32, requires_grad=True), dtype)
    assert found.status is status
    assert status is Status.PASS or found.failure.message.startswith("grad['input 0']")
    assert found.details["checked_by"] == "float64" or status is not Status.PASS
    assert stepped(squaring(factor), dtype=dtype).status is Status.PASS, "an input that asks for no gradient"


def test_outputs_cost_no_gradient_and_nothing_is_kept_between_steps():
    subject = subject_of(scoring(), Phase.TRAINING, loss=loss_of)
    _, outputs = subject._loss_of(*subject.inputs.args)
    assert not any(output.requires_grad for output in outputs)
    subject.eager()
    assert subject._made == []
