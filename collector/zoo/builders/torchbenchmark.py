"""Builds a model of an installed `torchbenchmark`, as its own runner would, and takes it out of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import torch

from collector.vocabulary import Phase
from collector.zoo.builders.user import own_loss_or_mean_squares
from collector.zoo.device_use import begin_device_use
from collector.zoo.spec import Built


def build(batch_size: int, phase: Phase, device: str, name: str) -> Built:
    """The module and the example inputs of `torchbenchmark.models.NAME`.

    The package's own losses are hidden in its training loops, so `own_loss_or_mean_squares` is taken. Raises
    `NotImplementedError` if the package does not have the model in this phase or on this device.
    """
    begin_device_use()  # the package puts its models there itself
    made = import_module(f"torchbenchmark.models.{name}").Model(
        test="train" if phase is Phase.TRAINING else "eval", device=device, batch_size=batch_size
    )
    model, inputs = made.get_module()
    args = () if isinstance(inputs, Mapping) else (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    return Built(model, args, kwargs, own_loss_or_mean_squares)
