"""The layers of Speech-Transformer: attention, feed-forward, positions."""

# torch has no types for mypy here, so that nn.Module is Any.
# mypy: allow-subclassing-any

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.zoo.builders.dropout import PROBABILITY

WIDTH = 512
HEADS = 8
HEAD_WIDTH = WIDTH // HEADS
INNER = 2048
_LONGEST = 5000


class ScaledDotProduct(nn.Module):
    """Attention written out, with the temperature that gives this model its place in the zoo."""

    def __init__(self) -> None:
        super().__init__()
        # Not a Python float: torch.compile sees a np.float64 as a 0-d tensor on the CPU, for which cudagraphs skip the graph.
        self.temperature = np.power(HEAD_WIDTH, 0.5)
        self.dropout = nn.Dropout(PROBABILITY)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """All of shape (heads x batch, length, width); nothing is attended where the mask is true."""
        scores = torch.bmm(query, key.transpose(1, 2)) / self.temperature
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=2)
        return torch.bmm(self.dropout(weights), value)


class MultiHeadAttention(nn.Module):
    """Projections around the attention, then the residual and the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for projection in (self.query, self.key, self.value):
            nn.init.normal_(projection.weight, std=(2.0 / (WIDTH + HEAD_WIDTH)) ** 0.5)
        self.attention = ScaledDotProduct()
        self.output = nn.Linear(WIDTH, WIDTH)
        nn.init.xavier_normal_(self.output.weight)
        self.dropout = nn.Dropout(PROBABILITY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """`x` attends to `memory`; both are (batch, length, width), the mask (batch, length of x, length of memory)."""
        batch = x.size(0)
        heads = self.attention(
            _split(self.query(x)), _split(self.key(memory)), _split(self.value(memory)), mask.repeat(HEADS, 1, 1)
        )
        joined = heads.view(HEADS, batch, -1, HEAD_WIDTH).permute(1, 2, 0, 3).reshape(batch, -1, WIDTH)
        found: Tensor = self.norm(self.dropout(self.output(joined)) + x)
        return found


class FeedForward(nn.Module):
    """Two linear layers, position by position, then the residual and the norm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, INNER)
        self.outer = nn.Linear(INNER, WIDTH)
        self.dropout = nn.Dropout(PROBABILITY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape."""
        found: Tensor = self.norm(self.dropout(self.outer(functional.relu(self.inner(x)))) + x)
        return found


class Positions(nn.Module):
    """Sines and cosines of the position."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        position = torch.arange(_LONGEST).unsqueeze(1)
        rate = torch.exp(torch.arange(0, WIDTH, 2) * -(np.log(10000.0) / WIDTH))
        table = torch.zeros(1, _LONGEST, WIDTH)
        table[0, :, 0::2] = torch.sin(position * rate)
        table[0, :, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, length: int) -> Tensor:
        """The first `length` positions."""
        return self.table[:, :length]


def _split(x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    return x.view(batch, length, HEADS, HEAD_WIDTH).permute(2, 0, 1, 3).reshape(-1, length, HEAD_WIDTH)
