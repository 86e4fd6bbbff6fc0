"""What the correctness stage says of models that draw random numbers, keep state, or have no float64 form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.measure.program import Subject, seed_everything
from collector.process.outcome import Outcome
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Measurement, Phase, Stage, Status
from collector.zoo.spec import Built

EAGER = Config(backend="eager")


def checked(model, phase=Phase.INFERENCE, dtype="float32", config=EAGER, calls_before=0, inputs=None, room=Room()):  # noqa: B008 - it is frozen
    cell = Cell("tests", "tiny", phase, dtype, "cpu", 8, config)
    seed_everything()
    x = torch.randn(64, 32) if inputs is None else inputs
    subject = Subject(cell, Built(model, (x,), {}, lambda out, _: out.float().square().mean()))
    effective = resolve_config(config, "cpu")
    compiled = subject.compiled(effective)
    for _ in range(calls_before):
        subject.eager()
        compiled()
    torch._dynamo.reset()
    return outcome_of(cell, subject, compiled, effective, None, room)


def outcome_of(cell, *checked):
    outcome = Outcome(Measurement(cell, Status.PASS, "", 0.0))
    check(outcome, *checked)
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


@pytest.mark.parametrize(
    ("model", "dtype", "by"),
    [
        (without(), "float32", "float64"),
        (without(torch.float64), "float32", "cosine"),
        (without(torch.float64), "bfloat16", "float32"),
        (without(torch.float64), "amp", "float32"),
        (without(torch.float64, torch.float32), "bfloat16", "cosine"),
    ],
)
def test_the_most_precise_reference_that_there_is_is_taken(model, dtype, by):
    found = checked(model, dtype=dtype)
    assert (found.status, found.details["checked_by"]) == (Status.PASS, by)
    assert ("error_rmse_ratio" in found.metrics) is (by != "cosine")
    assert (0 <= found.metrics["error_margin"] < 1, found.details["nearest_to_limit"]) == (True, "output")


@pytest.mark.parametrize("factor", [1.06, 0.1])
@pytest.mark.parametrize("missing", [(), (torch.float64, torch.float32)])
def test_outputs_of_the_wrong_size_fail_whatever_they_are_compared_with(factor, missing):
    found = checked(without(*missing, factor=factor), dtype="bfloat16")
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.stage is Stage.CORRECTNESS
    assert found.metrics["error_margin"] > 1


class Moves(nn.Module):
    def __init__(self, forgets):
        super().__init__()
        self.norm, self.forgets = nn.BatchNorm1d(32), forgets

    def forward(self, x):
        norm = self.norm
        if self.forgets and torch.compiler.is_compiling():
            return nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)
        return norm(x)


@pytest.mark.parametrize("calls_before", [0, 50])
def test_statistics_that_only_eager_moves_fail_however_often_both_have_run(calls_before):
    found = checked(Moves(forgets=True), Phase.TRAINING, calls_before=calls_before)
    assert found.status is Status.FAIL_ACCURACY
    assert "state['norm.running_mean']" in found.failure.message
    assert checked(Moves(forgets=False), Phase.TRAINING, calls_before=calls_before).status is Status.PASS


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
    cell = Cell("tests", "tiny", Phase.INFERENCE, "float32", "cpu", 8, Config(backend=backend))
    x = torch.randn(64, 32)
    subject = Subject(cell, Built(Caches(), (x,), {}, lambda out, _: out.sum()))
    assert outcome_of(cell, subject, lambda: x * 2, resolve_config(cell.config, "cpu")).status is status


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


def options_asked(monkeypatch, model, config):
    asked = []
    compiled = Subject.compiled
    monkeypatch.setattr(Subject, "compiled", lambda self, of: asked.append(dict(of.options)) or compiled(self, of))
    found = checked(model, config=config)
    return found, asked


def test_inductor_is_compared_while_it_draws_as_eager_does(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        found, asked = options_asked(monkeypatch, Drops(0.5), Config(template="triton"))
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["cosine"] > 0.999
    assert asked == [{}, {"fallback_random": True}]


def test_an_eager_run_without_numbers_fails_and_masked_scores_are_compared():
    found = checked(Does(lambda x: x / (x - x)), inputs=torch.zeros(4, 4))
    assert found.status is Status.EAGER_FAIL
    assert found.failure.message == "output: 16 of 16 values are NaN in eager"
    assert "without any compiler" in found.failure.hint
    found = checked(Does(lambda x: x.masked_fill(x > 1, -math.inf)))
    assert (found.status, found.details["checked_by"]) == (Status.PASS, "float64")
