"""Three models of a few layers, for timing `check` on a machine without a GPU (docs/check.md)."""

from __future__ import annotations

import torch
from torch import nn


class Softmax(nn.Module):
    """A linear layer and a chain of pointwise operations with a reduction."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum for each row."""
        x = self.linear(x)
        return torch.softmax(x.sin() + x.cos(), -1).sum(-1)


class Norm(nn.Module):
    """A residual block of two linear layers and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the same size."""
        made: torch.Tensor = self.two(nn.functional.gelu(self.norm(self.one(x))))
        return made + x


class Convolution(nn.Module):
    """A convolution with a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of each channel."""
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))


def softmax(batch_size: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the model of this name and its inputs."""
    return Softmax(), (torch.randn(32 * batch_size, 64),)


def norm(batch_size: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the model of this name and its inputs."""
    return Norm(), (torch.randn(32 * batch_size, 64),)


def conv(batch_size: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the model of this name and its inputs."""
    return Convolution().eval(), (torch.randn(4 * batch_size, 3, 32, 32),)
