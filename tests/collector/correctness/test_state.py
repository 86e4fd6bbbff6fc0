"""What a call starts from is kept and put back in the same storage; what it changed is told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collector.correctness.state import State


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("still", torch.full((2,), float("nan")))


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def state(model):
    return State(model, ((torch.arange(4.0), "no tensor"), {"mask": torch.ones(2)}))


def test_a_changed_buffer_is_told_and_put_back_in_its_storage(model, state):
    place, version = model.mean.data_ptr(), model.still._version
    model.mean.add_(1)
    assert {path: value.tolist() for path, value in state.changed().items()} == {"state['mean']": [1, 1, 1]}
    state.put_back()
    assert model.mean.tolist() == [0, 0, 0]
    assert model.mean.data_ptr() == place
    assert model.still._version == version  # what did not change is not written
    assert state.changed() == {}


def test_parameters_are_kept_once_asked_for_and_let_go(model, state):
    state.keep_rest()
    with torch.no_grad():
        model.weight.add_(1)
    assert list(state.changed()) == ["state['weight']"]
    state.put_back()
    assert model.weight.tolist() == [1, 1, 1]
    assert model.weight.requires_grad
    state.let_rest_go()
    with torch.no_grad():
        model.weight.add_(1)
    assert state.changed() == {}


@pytest.mark.parametrize("value", [torch.ones(5), torch.ones(3, dtype=torch.float64)])
def test_a_buffer_replaced_by_another_kind_is_replaced_again(model, state, value):
    model.mean = value
    assert list(state.changed()) == ["state['mean']"]
    state.put_back()
    assert model.mean.tolist() == [0, 0, 0]
    assert model.mean.dtype is torch.float32
