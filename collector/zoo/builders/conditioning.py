"""Conditioning of random networks, so that they test a compiler well, and losses that keep the output's dtype.

A network with fresh weights is a poor test. Batch norms that saw no data do not normalise, so that activations vanish or
explode with depth; branches that are to be learnt start with a gain of zero. Then whole parts of the program could compute
nonsense, and the output would still agree with eager's. The functions here change values only, and not the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from collector.device import device_named
from collector.zoo.spec import begin_device_use, is_cpu

#: Gains below this have no effect in bfloat16 next to a residual stream of magnitude one.
_DEAD = 1e-3
_AWAKE_STD = 0.2


def wake_dead_gains(model: nn.Module) -> None:
    """Redraw every parameter that is (nearly) zero everywhere and is no bias, such as the last gain of a residual branch."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_gain = parameter.numel() > 0 and "bias" not in name.rpartition(".")[2]
            if is_gain and parameter.abs().max() < _DEAD:
                parameter.normal_(0.0, _AWAKE_STD)


def calibrate_batch_norms(model: nn.Module, forward: Callable[[], Any]) -> None:
    """Set the running statistics of every batch norm to the statistics of one forward pass."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    # Everything else stays in eval mode, so that no dropout draws from the generators.
    model.eval()
    for norm in norms:
        norm.train()
        norm.momentum = None  # a plain average, here over the one batch
    with torch.no_grad():
        forward()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def built_on(device: str) -> torch.device:
    """Return the device on which to draw a model's weights: the one that it is built for if it is here, else the CPU.

    Drawing on the host takes half a minute for each 2B parameters. The device counts as used from this call on.
    """
    kind = device_named(device.partition(":")[0])
    if is_cpu(device) or not kind.is_here():
        return torch.device("cpu")
    begin_device_use()
    return torch.device(kind.torch_name)


def settle(model: nn.Module, device: str) -> torch.device:
    """Move a model to the device that it is built for, and return that device, for a forward pass while it is built.

    The pass takes seconds there instead of half a minute for a large network. If the device is not here, the model stays on
    the CPU.
    """
    place = built_on(device)
    model.to(place)
    return place


def spread_output(layer: nn.Module, std: float) -> None:
    """Scale a layer's parameters at its next call, so that its output has this standard deviation then and later."""

    def scale(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        factor = std / output.std()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(factor)
        handle.remove()
        return output * factor

    handle = layer.register_forward_hook(scale)


#: The probability of dropout. With zero the compiler would remove the operation, and the measured program would not be the one
#: that people train. With this probability random numbers are drawn, and no element is dropped (or scaled: 1 - 1e-30 rounds to
#: 1), except one of 2^25 in eager on CUDA and one of 2^31 in Inductor there, where a number comes out as 1 or 0
#: (`collector.correctness.draws`).
PROBABILITY = 1e-30


def silence_config(config: Any) -> None:
    """Set every dropout probability of a transformers configuration, and of its nested ones, to `PROBABILITY`."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            silence_config(value)
        elif "drop" in name and isinstance(value, float):
            setattr(config, name, PROBABILITY)


def silence_modules(model: nn.Module) -> None:
    """Lower the probability of every module that drops elements or whole branches to `PROBABILITY`; leave zeros as they are."""
    for module in model.modules():
        # nn.Dropout and its variants call it `p`, stochastic depth in timm and transformers `drop_prob`.
        for name in ("p", "drop_prob"):
            if isinstance(getattr(module, name, None), float) and getattr(module, name) > PROBABILITY:
                setattr(module, name, PROBABILITY)


def own_loss(output: Any, targets: Any) -> Tensor:
    """Return the loss that the model computed itself from the labels among its inputs."""
    loss: Tensor = output["loss"]
    return loss


def summed_losses(output: Any, targets: Any) -> Tensor:
    """Return the sum of the losses that a detection model returns by name in training mode."""
    total: Tensor = sum(output.values())
    return total


def classification_loss(output: Any, targets: Any) -> Tensor:
    """Compute the cross entropy of class scores against fixed random classes."""
    loss: Tensor = functional.cross_entropy(output, targets)
    return loss
