"""Image classifiers of timm and torchvision, with random weights and random images."""

from __future__ import annotations

import torch
from torch import nn

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import calibrate_batch_norms, settle, silence_modules, wake_dead_gains
from collector.zoo.builders.losses import classification_loss
from collector.zoo.spec import Built

_TORCHVISION_SIZE = (3, 224, 224)
_TORCHVISION_CLASSES = 1000
_CALIBRATION_BATCH = 4


def build_timm(batch_size: int, phase: Phase, device: str, *, name: str) -> Built:
    """A model of timm at the input size that its data configuration names for testing or for training."""
    import timm
    from timm.data import resolve_data_config

    model = timm.create_model(name, pretrained=False, in_chans=3, drop_rate=0.0)
    size = resolve_data_config({}, model=model, use_test_size=phase is Phase.INFERENCE)["input_size"]
    # A model without a head returns its features, and these serve as the scores.
    return _built(model, batch_size, device, tuple(size), model.num_classes or model.num_features)


def build_torchvision(batch_size: int, phase: Phase, device: str, *, name: str) -> Built:
    """A classifier of torchvision for ImageNet's thousand classes."""
    import torchvision

    model = torchvision.models.get_model(name, weights=None)
    return _built(model, batch_size, device, _TORCHVISION_SIZE, _TORCHVISION_CLASSES)


def _built(model: nn.Module, batch_size: int, device: str, size: tuple[int, ...], classes: int) -> Built:
    silence_modules(model)
    wake_dead_gains(model)
    place = settle(model, device)
    calibrate_batch_norms(model, lambda: model(torch.randn(_CALIBRATION_BATCH, *size).to(place)))
    images = torch.randn(batch_size, *size)
    return Built(model, (images,), {}, classification_loss, torch.randint(0, classes, (batch_size,)))
