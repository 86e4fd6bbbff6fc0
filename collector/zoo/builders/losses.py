"""Losses that several models share. They keep the output's dtype, so that a float64 copy of a step stays float64."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional


def own_loss(output: Any, targets: Any) -> Tensor:
    """The loss that the model computed itself from the labels among its inputs."""
    loss: Tensor = output["loss"]
    return loss


def summed_losses(output: Any, targets: Any) -> Tensor:
    """The sum of the losses that a detection model returns by name in training mode."""
    total: Tensor = sum(output.values())
    return total


def classification_loss(output: Any, targets: Any) -> Tensor:
    """Cross entropy of class scores against fixed random classes."""
    loss: Tensor = functional.cross_entropy(output, targets)
    return loss
