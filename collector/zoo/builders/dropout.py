"""Dropout that stays in the program and drops nothing."""

from __future__ import annotations

from typing import Any

from torch import nn

#: Zero would let the compiler remove the operation, and the measured program would not be the one people train. With this
#: probability the random numbers are drawn, and no element is ever dropped (nor scaled: 1 - 1e-30 rounds to 1).
PROBABILITY = 1e-30


def silence_config(config: Any) -> None:
    """Sets every dropout probability of a transformers configuration, those of nested configurations included."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            silence_config(value)
        elif "drop" in name and isinstance(value, float):
            setattr(config, name, PROBABILITY)


def silence_modules(model: nn.Module) -> None:
    """Lowers the probability of every module that drops elements or whole branches; those that drop nothing stay so."""
    for module in model.modules():
        # nn.Dropout and its kin call it p, the stochastic depth of timm and transformers drop_prob.
        for name in ("p", "drop_prob"):
            if isinstance(getattr(module, name, None), float) and getattr(module, name) > PROBABILITY:
                setattr(module, name, PROBABILITY)
