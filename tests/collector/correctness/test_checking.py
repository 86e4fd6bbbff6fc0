"""What the correctness stage says of models that draw random numbers, keep state, or have no float64 form."""

import math
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.measure.program import Subject, seed_everything
from collector.process.outcome import Outcome
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from collector.zoo.spec import Built

EAGER = Config(backend="eager")


def checked(model, phase=Phase.INFERENCE, dtype="float32", config=EAGER, calls_before=0, inputs=None, room=Room()):  # noqa: B008 - it is frozen
    subject = subject_of(model, phase, dtype, config, inputs)
    compiled = subject.compiled(resolve_config(config, "cpu"))
    for _ in range(calls_before):
        subject.eager()
        compiled()
    torch._dynamo.reset()
    return outcome_of(subject, compiled, room)


def subject_of(model, phase=Phase.INFERENCE, dtype="float32", config=EAGER, inputs=None, loss=None, targets=None):
    """The model as it is built for a cell, seeded; its loss is the mean square of what it returns."""
    seed_everything()
    x = torch.randn(64, 32) if inputs is None else inputs
    loss = loss or (lambda out, _: out.float().square().mean())
    return Subject(Cell("tests", "tiny", phase, dtype, "cpu", 8, config), Built(model, (x,), {}, loss, targets))


def outcome_of(subject, compiled=None, room=Room()):  # noqa: B008 - it is frozen
    effective = resolve_config(subject._cell.config, "cpu")
    outcome = Outcome(Measurement(subject._cell, Status.PASS, "", 0.0))
    check(outcome, subject, compiled or subject.compiled(effective), effective, None, room)
    return outcome.measurement


class Does(nn.Module):
    """Calls a function, and another one where it is compiled."""

    def __init__(self, eager, compiled=None):
        super().__init__()
        self.eager, self.compiled = eager, compiled or eager

    def forward(self, x):
        return self.compiled(x) if torch.compiler.is_compiling() else self.eager(x)


def without(*dtypes, factor=1.0):
    """A model that cannot be had in some dtypes and, compiled, is off by a factor."""

    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(32, 16)

        def forward(self, x):
            if self.linear.weight.dtype in dtypes and not torch.is_autocast_enabled("cpu"):
                raise RuntimeError(f"not in {self.linear.weight.dtype}")
            out = self.linear(x)
            return out * factor if torch.compiler.is_compiling() else out * 1.0

    return Picky()


class Moves(nn.Module):
    def __init__(self, forgets):
        super().__init__()
        self.norm, self.forgets = nn.BatchNorm1d(32), forgets

    def forward(self, x):
        norm = self.norm
        if self.forgets and torch.compiler.is_compiling():
            return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
        return norm(x)


def test_statistics_that_only_eager_moves_fail_after_many_calls_too():
    found = checked(Moves(forgets=True), Phase.TRAINING, calls_before=50)
    assert found.status is Status.FAIL_ACCURACY
    assert "state['norm.running_mean']" in found.failure.message
    assert checked(Moves(forgets=False), Phase.TRAINING, calls_before=50).status is Status.PASS


class Caches(nn.Module):
    """Adds each call's input to a cache and returns it: what it returns depends on how often it was called."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(64, 32))

    def forward(self, x):
        self.cache.add_(x)
        return self.cache * 2


def test_a_model_that_remembers_is_compared_from_one_state():
    found = checked(Caches(), calls_before=3)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.details["tensors_compared"] == 2


@pytest.mark.parametrize(("backend", "status"), [("aot_inductor", Status.PASS), ("aot_eager", Status.FAIL_ACCURACY)])
def test_buffers_that_a_library_has_copies_of_are_not_compared(backend, status):
    x = torch.randn(64, 32)
    subject = subject_of(Caches(), config=Config(backend=backend), inputs=x)
    assert outcome_of(subject, lambda: x * 2).status is status


class MovesItsWeight(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.weight, self.factor = nn.Parameter(torch.ones(32)), factor

    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(1.01)
        out = x * self.weight
        return out * self.factor if torch.compiler.is_compiling() else out * 1.0


def test_a_parameter_that_a_call_changes_is_put_back_and_compared():
    found = checked(MovesItsWeight())
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.details["tensors_compared"] == 2
    # From moved ones eager itself would be one percent off, and two percent would be allowed.
    assert checked(MovesItsWeight(factor=0.99)).status is Status.FAIL_ACCURACY


class Drops(nn.Module):
    def __init__(self, probability, factor=1.0):
        super().__init__()
        self.probability, self.factor = probability, factor

    def forward(self, x):
        out = nn.functional.dropout(x, self.probability, training=True)
        return out * self.factor if torch.compiler.is_compiling() else out * 1.0


@pytest.mark.parametrize(("factor", "status"), [(1.0, Status.PASS), (1.5, Status.FAIL_ACCURACY)])
def test_random_outputs_are_compared_with_eager_alone(factor, status):
    found = checked(Drops(0.5, factor))
    assert found.status is status
    assert (found.details["checked_by"], found.details["random_outputs"]) == ("cosine", True)


def test_random_numbers_below_eagers_rounding_leave_the_reference():
    # They turn a last bit now and then: far less than bfloat16 rounds anyway.
    found = checked(Does(lambda x: x * 1.003 + torch.randn_like(x) * 1e-5), dtype="bfloat16")
    assert (found.status, found.failure) == (Status.PASS, None)
    assert (found.details["checked_by"], found.details["random_outputs"]) == ("float64", True)


def test_inductor_is_compared_while_it_draws_as_eager_does(monkeypatch, own_cache):
    asked, released, compiled = [], [], Subject.compiled
    monkeypatch.setattr(Subject, "compiled", lambda self, of: asked.append(dict(of.options)) or compiled(self, of))

    @contextmanager
    def release():
        released.append("released")
        yield
        released.append("taken")

    found = checked(Drops(0.5), config=Config(template="triton"), calls_before=1, room=Room(release=release))
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["cosine"] > 0.999
    assert asked == [{}, {"fallback_random": True}]
    assert released[:2] == ["released", "taken"], "the second program compiles without the device"
    assert len(released) % 2 == 0


def test_an_eager_run_without_numbers_fails_and_masked_scores_are_compared():
    found = checked(Does(lambda x: x / (x - x)), inputs=torch.zeros(4, 4))
    assert found.status is Status.EAGER_FAIL
    assert found.failure.message == "output: 16 of 16 values are NaN in eager"
    assert "without any compiler" in found.failure.hint
    found = checked(Does(lambda x: x.masked_fill(x > 1, -math.inf)))
    assert (found.status, found.details["checked_by"]) == (Status.PASS, "float64")
