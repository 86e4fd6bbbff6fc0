"""A small program that makes the compiler import what it needs; its result and its time are thrown away."""

from __future__ import annotations

import torch
from torch import nn


class _Small(nn.Module):  # type: ignore[misc]
    """A convolution, a matrix product, a reduction and a few pointwise operators: the kinds of code that models need."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores for a batch of images."""
        hidden = torch.relu(self.convolution(images)).mean((2, 3))
        return torch.softmax(self.linear(self.norm(hidden)), -1)


def compile_something(device: str) -> None:
    """Compiles and runs a small model on a device, forward and backward. Raises what the compiler raises."""
    model = _Small().to(device)
    images = torch.zeros(2, 3, 8, 8, device=device)
    with torch.no_grad():
        torch.compile(model)(images)
    torch.compile(model)(images).sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
