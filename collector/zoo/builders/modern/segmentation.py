"""The image encoder of Segment Anything."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from collector.vocabulary import Phase
from collector.zoo.builders.user import own_loss_or_mean_squares
from collector.zoo.spec import Built, is_cpu


def build(batch_size: int, phase: Phase, device: str) -> Built:
    """SAM's ViT-B encoder at 1024x1024 pixels: `SamVisionConfig`'s defaults are its published sizes."""
    small: dict[str, Any] = {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "window_size": 2,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
    }
    config = transformers.SamVisionConfig(**(small if is_cpu(device) else {}))
    images = torch.randn(batch_size, 3, config.image_size, config.image_size)
    return Built(_Encoder(transformers.SamVisionModel(config)), (images,), {}, own_loss_or_mean_squares)


class _Encoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model(pixel_values=images).last_hidden_state
        return features
