"""Models of a user that a census generates code for in a second."""

import os
import signal
import sys

import torch
from torch import nn


class Net(nn.Module):
    """Two layers with a norm between them; the first weight is used twice."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 10)
        self.again = nn.Linear(32, 64)
        self.again.weight = self.one.weight

    def forward(self, x):
        return self.two(torch.relu(self.norm(self.one(x) + self.again(x))))


class Halves(Net):
    """Keeps what its first call makes, and is compiled in two graphs."""

    scale = None

    def forward(self, x):
        self.scale = torch.full((32,), 2.0) if self.scale is None else self.scale
        x = self.again(x * self.scale)[:, :32]
        torch._dynamo.graph_break()
        return super().forward(x)


def net_in_two(batch_size):
    return Halves(), (torch.randn(batch_size, 32),)


def net(batch_size):
    return Net(), (torch.randn(batch_size, 32),)


def net_that_reads_a_value(batch_size):
    model = Net()
    assert float(model.norm.weight.sum()) == 64
    return model, (torch.randn(batch_size, 32),)


def net_that_never_ends(batch_size):
    signal.pause()


def net_that_crashes(batch_size):
    os.abort()


def net_that_fails(batch_size):
    sys.stderr.write(600 * f"{os.environ['SMALL_TOKEN']}\n")
    raise ValueError(f"no model of {batch_size}")
