"""What eager leaves alone is bit-identical after a compiled call, and what a call starts from is put back."""

import pytest
import torch
from torch import nn

from collector.correctness.state import State, fingerprint
from collector.vocabulary import Phase, Status
from tests.collector.correctness.test_checking import Does, checked, outcome_of, subject_of


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


@pytest.mark.parametrize(
    ("what", "dtype", "by"),
    [("input", "bfloat16", 1 + 2**-7), ("weight", "float32", 1.015), ("buffer", "float32", 1.015)],
)
def test_a_tensor_that_only_the_compiled_program_changes_fails(what, dtype, by):
    found = checked(Touches(what, by), dtype=dtype)
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith(f"state['{PATHS[what]}']: the compiled program changes it")


def test_an_input_changed_in_a_training_step_fails_and_nothing_else_does():
    found = checked(Touches("input"), Phase.TRAINING)
    assert (found.status, PATHS["input"] in found.failure.message) == (Status.FAIL_ACCURACY, True)
    assert checked(Touches(), Phase.TRAINING).failure is None


def test_what_eager_writes_without_changing_it_is_judged_by_its_size():
    def adding(what):
        def add(model, x):
            model.mean.add_(what)
            return x * 2

        return add

    assert checked(Does(adding(1e-9), adding(1e-6), mean=torch.ones(4))).failure is None


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
    subject = subject_of(Touches())
    subject.state.remember()
    compiled = Once(subject)
    for _ in range(calls):
        compiled()
    found = outcome_of(subject, compiled)
    assert found.status is Status.FAIL_ACCURACY
    assert "state['linear.weight']" in found.failure.message


def test_targets_are_watched_as_inputs_are():
    def loss(out, targets):
        found = (out - targets.clone()).square().mean()
        if torch.compiler.is_compiling():
            targets.mul_(1.015)
        return found

    found = outcome_of(subject_of(Touches(), Phase.TRAINING, loss=loss, targets=torch.randn(64, 16)))
    assert "state['input 1']: the compiled program changes it" in found.failure.message


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64])
def test_a_fingerprint_minds_every_bit_and_the_order(dtype, monkeypatch):
    monkeypatch.setattr("collector.correctness.state._CHUNK", 10)
    x = (torch.arange(1000) % 7).to(dtype)
    assert torch.equal(fingerprint(x), fingerprint(x.clone()))
    swapped = x.clone()
    swapped[:2] = x[:2].flip(0)
    other = x.clone()
    other[999] = 1 - other[999].to(torch.int64) if dtype is torch.bool else other[999] + 1
    assert not torch.equal(fingerprint(x), fingerprint(swapped)) and not torch.equal(fingerprint(x), fingerprint(other))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("still", torch.full((2,), float("nan")))


def test_a_changed_buffer_is_put_back_in_its_storage_or_replaced():
    model = Model()
    state = State(model, ((torch.arange(4.0), "no tensor"), {"mask": torch.ones(2)}))
    place, version = model.mean.data_ptr(), model.still._version
    model.mean.add_(1)
    assert {path: value.tolist() for path, value in state.changed().items()} == {"state['mean']": [1, 1, 1]}
    state.put_back()
    assert model.mean.tolist() == [0, 0, 0]
    assert model.mean.data_ptr() == place
    assert model.still._version == version  # what did not change is not written
    assert state.changed() == {}
    state.keep_rest()
    with torch.no_grad():
        model.weight.add_(1)
    assert list(state.changed()) == ["state['weight']"]
    state.let_rest_go()
    assert state.changed() == {}, "no copy of a parameter is held"
    model.mean = torch.ones(5, dtype=torch.float64)
    assert list(state.changed()) == ["state['mean']"]
    state.put_back()
    assert model.mean.tolist() == [0, 0, 0]
    assert model.mean.dtype is torch.float32
