"""What eager leaves alone is bit-identical after a compiled call, and what a call starts from is put back."""

import pytest
import torch
from torch import nn

from collector.correctness.state import State, fingerprint
from collector.vocabulary import Phase, Status
from tests.collector.correctness.test_checking import Does, checked, outcome_of, spoiling, subject_of


def touches(what=None, by=1.015):
    """Changes, where it is compiled, one of its tensors behind the result's back."""

    def multiply(model, x):
        return model.linear(x.clone()) * model.scale.clone()

    def touch(model, x):
        out = multiply(model, x)
        with torch.no_grad():
            {"input 0": x, "linear.weight": model.linear.weight, "scale": model.scale}[what].mul_(by)
        return out

    return Does(multiply, touch if what else None, linear=nn.Linear(32, 16), scale=torch.full((16,), 0.5))


@pytest.mark.parametrize(
    ("what", "dtype", "by", "phase"),
    [
        ("input 0", "bfloat16", 1 + 2**-7, Phase.INFERENCE),
        ("linear.weight", "float32", 1.015, Phase.INFERENCE),
        ("scale", "float32", 1.015, Phase.INFERENCE),
        ("input 0", "float32", 1.015, Phase.TRAINING),
    ],
)
def test_a_tensor_that_only_the_compiled_program_changes_fails(what, dtype, by, phase):
    assert checked(touches(), phase, dtype).failure is None
    found = checked(touches(what, by), phase, dtype)
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith(f"state['{what}']: the compiled program changes it")


def test_what_eager_writes_without_changing_it_is_judged_by_its_size():
    def add(model, x, what=1e-9):
        model.mean.add_(what)
        return x * 2

    assert checked(Does(add, lambda model, x: add(model, x, 1e-6), mean=torch.ones(4))).failure is None


@pytest.mark.parametrize(("calls", "spoilt"), [(0, 1), (1, 1), (0, 4)])
def test_a_weight_that_an_earlier_or_a_later_call_changes_fails(calls, spoilt):
    subject = subject_of(touches())
    subject.state.remember()
    compiled = spoiling(subject, spoilt)
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

    found = outcome_of(subject_of(touches(), Phase.TRAINING, loss=loss, targets=torch.randn(64, 16)))
    assert "state['input 1']: the compiled program changes it" in found.failure.message


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64])
def test_a_fingerprint_minds_every_bit_and_the_order(dtype, monkeypatch):
    monkeypatch.setattr("collector.correctness.state._CHUNK", 10)
    x = (torch.arange(1000) % 7).to(dtype)
    assert torch.equal(fingerprint(x), fingerprint(x.clone()))
    swapped, other = x.clone(), x.clone()
    swapped[:2] = x[:2].flip(0)
    other[999] = not other[999] if dtype is torch.bool else other[999] + 1
    assert not any(torch.equal(fingerprint(x), fingerprint(changed)) for changed in (swapped, other))


def test_a_changed_buffer_is_put_back_in_its_storage_or_replaced():
    buffers = {"mean": torch.zeros(3), "still": torch.full((2,), float("nan"))}
    model = Does(None, weight=nn.Parameter(torch.ones(3)), **buffers)
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
