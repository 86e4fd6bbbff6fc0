"""Models of transformers from their configuration classes, with random token ids or random images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import (
    calibrate_batch_norms,
    settle,
    silence_config,
    silence_modules,
    wake_dead_gains,
)
from collector.zoo.builders.losses import own_loss
from collector.zoo.spec import Built, is_cpu

#: Architectures whose decoder is fed ids of its own.
_ENCODER_DECODERS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "M2M100ForConditionalGeneration")


def build_text(
    batch_size: int,
    phase: Phase,
    device: str,
    *,
    architecture: str,
    config: Mapping[str, Any],
    length: int,
    cpu_length: int,
) -> Built:
    """The library's default sizes but for `config`. As in PyTorch's runner: no attention mask, labels in both phases."""
    kind = getattr(transformers, architecture)
    configuration = kind.config_class(**config)
    configuration.use_cache = False
    silence_config(configuration)
    model = kind(configuration)
    silence_modules(model)
    shape = (batch_size, cpu_length if is_cpu(device) else length)
    return Built(model, (), _inputs(architecture, configuration, shape), own_loss)


def _inputs(architecture: str, config: Any, shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    inputs = {"input_ids": torch.randint(0, config.vocab_size, shape)}
    if "Bart" in architecture:
        # These models pool at the end-of-sequence token, of which every row needs one.
        inputs["input_ids"][:, -1] = config.eos_token_id
    if architecture in _ENCODER_DECODERS:
        inputs["decoder_input_ids"] = torch.randint(0, config.vocab_size, shape)
    if architecture.endswith("ForSequenceClassification"):
        inputs["labels"] = torch.randint(0, config.num_labels, shape[:1])
    else:
        inputs["labels"] = torch.randint(0, config.vocab_size, shape)
    return inputs


_CLASSES = 1000
_SIDE = 224
_CALIBRATION_BATCH = 4


def build_vision(batch_size: int, phase: Phase, device: str, *, architecture: str, config: Mapping[str, Any]) -> Built:
    """The library's sizes but for `config`, for ImageNet's thousand classes; labels in both phases, as for text."""
    kind = getattr(transformers, architecture)
    configuration = kind.config_class(num_labels=_CLASSES, **config)
    model = kind(configuration)
    silence_modules(model)
    wake_dead_gains(model)
    place = settle(model, device)
    calibrate_batch_norms(model, lambda: model(pixel_values=torch.randn(_CALIBRATION_BATCH, 3, _SIDE, _SIDE).to(place)))
    inputs = {
        "pixel_values": torch.randn(batch_size, 3, _SIDE, _SIDE),
        "labels": torch.randint(0, _CLASSES, (batch_size,)),
    }
    return Built(model, (), inputs, own_loss)
