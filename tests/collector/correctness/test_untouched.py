"""What eager leaves alone is bit-identical after a compiled call: inputs, weights, buffers and targets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collector.correctness.state import fingerprint
from collector.measure.program import Subject
from collector.templates import resolve_config
from collector.vocabulary import Cell, Phase, Status
from collector.zoo.spec import Built
from tests.collector.correctness.test_checking import EAGER, checked, outcome_of

BOTH = pytest.mark.parametrize("phase", list(Phase))


class Touches(nn.Module):
    """Changes, where it is compiled, one of its tensors behind the result's back."""

    def __init__(self, what=None, by=1.015):
        super().__init__()
        self.linear, self.what, self.by = nn.Linear(32, 16), what, by
        self.register_buffer("scale", torch.full((16,), 0.5))

    def forward(self, x):
        out = self.linear(x.clone()) * self.scale.clone()
        if self.what and torch.compiler.is_compiling():
            with torch.no_grad():
                {"input": x, "weight": self.linear.weight, "buffer": self.scale}[self.what].mul_(self.by)
        return out


PATHS = {"input": "input 0", "weight": "linear.weight", "buffer": "scale"}


@pytest.mark.parametrize("by", [1.015, 1 + 2**-7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", PATHS)
def test_a_tensor_that_only_the_compiled_program_changes_fails(what, dtype, by):
    found = checked(Touches(what, by), dtype=dtype)
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith(f"state['{PATHS[what]}']: the compiled program changes it")


@pytest.mark.parametrize("what", ["input", "buffer"])
def test_it_fails_in_a_training_step_too(what):
    found = checked(Touches(what), Phase.TRAINING)
    assert (found.status, PATHS[what] in found.failure.message) == (Status.FAIL_ACCURACY, True)


@BOTH
def test_a_model_that_changes_nothing_passes(phase):
    assert checked(Touches(), phase).failure is None


class Decays(nn.Module):
    """Writes to a buffer in both forms; in eager alone rounding leaves the values as they are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x):
        self.mean.add_(1e-6 if torch.compiler.is_compiling() else 1e-9)
        return x * 2


def test_what_eager_writes_without_changing_it_is_judged_by_its_size():
    assert checked(Decays()).failure is None


class Once:
    """A compiled program that spoils a weight in its first call and never again."""

    def __init__(self, subject):
        self.subject, self.calls = subject, 0

    def __call__(self):
        self.calls += 1
        if self.calls == 1:
            with torch.no_grad():
                self.subject.model.linear.weight[3, 5] += 1e-3
        return self.subject.eager()


@pytest.mark.parametrize("calls", [0, 1])
def test_a_weight_that_an_earlier_call_changed_fails(calls):
    cell = Cell("tests", "tiny", Phase.INFERENCE, "float32", "cpu", 8, EAGER)
    subject = Subject(cell, Built(Touches(), (torch.randn(64, 32),), {}, lambda out, _: out.sum()))
    subject.state.remember()
    compiled = Once(subject)
    for _ in range(calls):
        compiled()
    found = outcome_of(cell, subject, compiled, resolve_config(EAGER, "cpu"))
    assert found.status is Status.FAIL_ACCURACY
    assert "state['linear.weight']" in found.failure.message


def test_targets_are_watched_as_inputs_are():
    cell = Cell("tests", "tiny", Phase.TRAINING, "float32", "cpu", 8, EAGER)

    def loss(out, targets):
        found = (out - targets.clone()).square().mean()
        if torch.compiler.is_compiling():
            targets.mul_(1.015)
        return found

    subject = Subject(cell, Built(Touches(), (torch.randn(64, 32),), {}, loss, torch.randn(64, 16)))
    effective = resolve_config(EAGER, "cpu")
    found = outcome_of(cell, subject, subject.compiled(effective), effective)
    assert "state['input 1']: the compiled program changes it" in found.failure.message


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_fingerprint_minds_every_bit_and_the_order(dtype):
    x = (torch.arange(1000) % 7).to(dtype)
    assert torch.equal(fingerprint(x), fingerprint(x.clone()))
    swapped = x.clone()
    swapped[:2] = x[:2].flip(0)
    other = x.clone()
    other[999] = 1 - other[999].to(torch.int64) if dtype is torch.bool else other[999] + 1
    assert not torch.equal(fingerprint(x), fingerprint(swapped)) and not torch.equal(fingerprint(x), fingerprint(other))


def test_a_fingerprint_over_chunks_minds_their_order(monkeypatch):
    monkeypatch.setattr("collector.correctness.state._CHUNK", 10)
    x = torch.arange(40.0)
    assert not torch.equal(fingerprint(x), fingerprint(x.roll(10)))
