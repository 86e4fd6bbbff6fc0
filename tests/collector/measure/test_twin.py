"""A twin of a model owns its memory: what it writes must not reach the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collector.measure.program import Subject
from collector.vocabulary import Cell, Config, Phase
from collector.zoo.spec import Built


@pytest.mark.parametrize(("dtype", "wide"), [("bfloat16", None), ("float32", None), ("amp", torch.float32)])
def test_a_twin_of_the_same_precision_shares_no_weights_and_no_buffers(dtype, wide):
    cell = Cell("tests", "tiny", Phase.TRAINING, dtype, "cpu", 8, Config(backend="eager"))
    model = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16))
    subject = Subject(cell, Built(model, (torch.randn(64, 32),), {}, lambda out, _: out.float().sum()))
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    twin = subject.twin(wide)
    with torch.no_grad():
        for tensor in twin.model.state_dict().values():
            tensor.fill_(7)
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.model.state_dict().items())
