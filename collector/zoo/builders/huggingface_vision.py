"""Image classifiers of transformers from their configuration classes, with random images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers

from collector.vocabulary import Phase
from collector.zoo.builders import dropout
from collector.zoo.builders.conditioning import calibrate_batch_norms, settle, wake_dead_gains
from collector.zoo.builders.losses import own_loss
from collector.zoo.spec import Built

_CLASSES = 1000
_SIDE = 224
_CALIBRATION_BATCH = 4


def build(batch_size: int, phase: Phase, device: str, *, architecture: str, config: Mapping[str, Any]) -> Built:
    """The library's sizes but for `config`, for ImageNet's thousand classes; labels in both phases, as for text."""
    kind = getattr(transformers, architecture)
    configuration = kind.config_class(num_labels=_CLASSES, **config)
    model = kind(configuration)
    dropout.silence_modules(model)
    wake_dead_gains(model)
    place = settle(model, device)
    calibrate_batch_norms(model, lambda: model(pixel_values=torch.randn(_CALIBRATION_BATCH, 3, _SIDE, _SIDE).to(place)))
    inputs = {
        "pixel_values": torch.randn(batch_size, 3, _SIDE, _SIDE),
        "labels": torch.randint(0, _CLASSES, (batch_size,)),
    }
    return Built(model, (), inputs, own_loss)
