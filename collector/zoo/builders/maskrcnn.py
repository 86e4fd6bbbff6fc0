"""Mask R-CNN on a ResNet-50 with a feature pyramid, from torchvision, on one random image."""

from __future__ import annotations

from typing import Any

import torch

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import calibrate_batch_norms, settle, spread_output, wake_dead_gains
from collector.zoo.builders.losses import summed_losses
from collector.zoo.spec import Built

_HEIGHT, _WIDTH = 480, 640
_OBJECTS = 8
_CLASSES = 91


def build(batch_size: int, phase: Phase, device: str) -> Built:
    """Takes a list of images and, in training, a list of their objects; then it returns its losses by name."""
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    wake_dead_gains(model)
    place = settle(model, device)
    calibrate_batch_norms(model.backbone, lambda: model.backbone(torch.randn(2, 3, _HEIGHT, _WIDTH).to(place)))
    _make_decided(model, place)
    images = [torch.rand(3, _HEIGHT, _WIDTH) for _ in range(batch_size)]
    if phase is Phase.INFERENCE:
        return Built(model, (images,), {}, summed_losses)
    return Built(model, (images, [_objects() for _ in images]), {}, summed_losses)


def _make_decided(model: Any, place: str) -> None:
    """Spreads the scores of both stages.

    Fresh scores are all but equal: no class would pass the threshold, and which proposals are kept would hang on the last
    bit of a sum.
    """
    spread_output(model.rpn.head.cls_logits, 3.0)
    spread_output(model.roi_heads.box_predictor.cls_score, 3.0)
    model.eval()
    with torch.no_grad():
        model([torch.rand(3, _HEIGHT, _WIDTH).to(place)])


def _objects() -> dict[str, torch.Tensor]:
    corner = torch.rand(_OBJECTS, 2) * torch.tensor([_WIDTH, _HEIGHT]) / 2
    size = 32 + torch.rand(_OBJECTS, 2) * torch.tensor([_WIDTH, _HEIGHT]) / 3
    return {
        "boxes": torch.cat([corner, corner + size], dim=1),
        "labels": torch.randint(1, _CLASSES, (_OBJECTS,)),
        "masks": torch.randint(0, 2, (_OBJECTS, _HEIGHT, _WIDTH), dtype=torch.uint8),
    }
