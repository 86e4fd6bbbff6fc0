"""Moving fake modules: tied tensors stay tied, and every tensor is moved once."""

import torch
from torch import nn

from collector.census.generating import _Moving


def test_a_shared_weight_stays_shared():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.register_buffer("steps", torch.zeros(2))
    _Moving().apply(model, lambda tensor: tensor.double())
    assert model[1].weight is model[0].weight
    assert {tensor.dtype for tensor in (*model.parameters(), *model.buffers())} == {torch.float64}
    weight = model[0].weight
    _Moving().apply(model, lambda tensor: tensor)
    assert model[0].weight is weight
