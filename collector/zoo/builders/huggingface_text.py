"""Text models of transformers from their configuration classes, with random token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers

from collector.vocabulary import Phase
from collector.zoo.builders import dropout
from collector.zoo.builders.losses import own_loss
from collector.zoo.spec import Built, is_cpu

#: Architectures whose decoder is fed ids of its own.
_ENCODER_DECODERS = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "M2M100ForConditionalGeneration")


def build(
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
    dropout.silence_config(configuration)
    model = kind(configuration)
    dropout.silence_modules(model)
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
