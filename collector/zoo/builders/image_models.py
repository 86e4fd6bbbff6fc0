"""Image models with random weights and random images: classifiers, Mask R-CNN, YOLOv3.

YOLOv3 is written from the published architecture (Redmon and Farhadi, YOLOv3, 2018, and the layer list yolov3-spp). Its detection
layers keep the habits of the PyTorch port in torchbench, for which this model is measured: they store the grid's size as a new
tensor on the CPU, and they move their anchors to the device when first called. The port stores the grid's size when it changes,
and is compiled before its first call. Here eager runs first, so the size is stored in every call, to be part of the compiled
program as in torchbench.
"""

# torch has no types for mypy here, so that nn.Module and its results are Any.
# mypy: allow-subclassing-any, no-warn-return-any

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import (
    calibrate_batch_norms,
    classification_loss,
    settle,
    silence_modules,
    spread_output,
    summed_losses,
    wake_dead_gains,
)
from collector.zoo.spec import Built, is_cpu

_TORCHVISION_SIZE = (3, 224, 224)
_TORCHVISION_CLASSES = 1000
_CALIBRATION_BATCH = 4


def build_timm(batch_size: int, phase: Phase, device: str, *, name: str) -> Built:
    """Build a model of timm at the input size that its data configuration names for testing or for training."""
    import timm
    from timm.data import resolve_data_config

    model = timm.create_model(name, pretrained=False, in_chans=3, drop_rate=0.0)
    size = resolve_data_config({}, model=model, use_test_size=phase is Phase.INFERENCE)["input_size"]
    # A model without a head returns its features, which serve as scores.
    return _built(model, batch_size, device, tuple(size), model.num_classes or model.num_features)


def build_torchvision(batch_size: int, phase: Phase, device: str, *, name: str) -> Built:
    """Build a classifier of torchvision for ImageNet's thousand classes."""
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


_HEIGHT, _WIDTH = 480, 640
_OBJECTS = 8
_CLASSES = 91


def build_maskrcnn(batch_size: int, phase: Phase, device: str) -> Built:
    """Build Mask R-CNN. It takes a list of images and, in training, a list of their objects; then it returns losses by name."""
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


def _make_decided(model: Any, place: torch.device) -> None:
    """Spread the scores of both stages.

    Fresh scores are nearly equal: no class would pass the threshold, and the last bit of a sum would decide which proposals
    are kept.
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


CLASSES = 80
_IMAGE = (384, 512)
_IMAGE_ON_CPU = (192, 256)
#: Residual blocks of the five stages of Darknet-53.
_STAGES = (1, 2, 8, 8, 4)
#: Stride -> anchors in pixels.
_ANCHORS = {
    32: ((116, 90), (156, 198), (373, 326)),
    16: ((30, 61), (62, 45), (59, 119)),
    8: ((10, 13), (16, 30), (33, 23)),
}


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution, batch norm and leaky ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-4, momentum=0.03),
        nn.LeakyReLU(0.1, inplace=True),
    )


class _Residual(nn.Module):
    """A bottleneck with a short cut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels // 2, 1), _conv(channels // 2, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class _SpatialPyramid(nn.Module):
    """The concatenation of the input and its maxima over three window sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList(nn.MaxPool2d(size, stride=1, padding=size // 2) for size in (5, 9, 13))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([*(pool(x) for pool in self.pools), x], dim=1)


class _Detection(nn.Module):
    """A detection layer: boxes of one scale (None in training mode), and raw scores (batch, anchor, y, x, 5 + classes)."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.nx = self.ny = 0
        self.ng: Tensor | None = None
        self.grid: Tensor | None = None
        # Plain attributes, as in the port: `Module.to` does not move them.
        self.anchor_vec = torch.tensor(_ANCHORS[stride], dtype=torch.float) / stride
        self.anchor_wh = self.anchor_vec.view(1, -1, 1, 1, 2)

    def create_grids(self, ng: tuple[int, int], device: torch.device) -> None:
        """Store the grid's size (a tensor on the CPU), in eval mode its cells, and the anchors (both on the device)."""
        self.nx, self.ny = ng
        self.ng = torch.tensor(ng, dtype=torch.float)
        if not self.training:
            rows, columns = torch.meshgrid(
                torch.arange(self.ny, device=device), torch.arange(self.nx, device=device), indexing="ij"
            )
            self.grid = torch.stack((columns, rows), 2).view(1, 1, self.ny, self.nx, 2).float()
        if self.anchor_vec.device != device:
            self.anchor_vec = self.anchor_vec.to(device)
            self.anchor_wh = self.anchor_wh.to(device)

    def forward(self, scores: Tensor) -> tuple[Tensor | None, Tensor]:
        batch, _, ny, nx = scores.shape
        raw = scores.view(batch, len(_ANCHORS[self.stride]), CLASSES + 5, ny, nx).permute(0, 1, 3, 4, 2).contiguous()
        self.create_grids((nx, ny), scores.device)
        if self.training:
            return None, raw
        boxes = raw.clone()
        boxes[..., :2] = torch.sigmoid(boxes[..., :2]) + self.grid
        boxes[..., 2:4] = torch.exp(boxes[..., 2:4]) * self.anchor_wh
        boxes[..., :4] *= self.stride
        torch.sigmoid_(boxes[..., 4:])
        return boxes.view(batch, -1, CLASSES + 5), raw


class _Scale(nn.Module):
    """The last layers of one scale: raw scores and boxes."""

    def __init__(self, inputs: int, stride: int) -> None:
        super().__init__()
        self.widen = _conv(inputs, 2 * inputs, 3)
        self.scores = nn.Conv2d(2 * inputs, len(_ANCHORS[stride]) * (CLASSES + 5), 1)
        self.detection = _Detection(stride)

    def forward(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        return self.detection(self.scores(self.widen(x)))


def _stage(inputs: int, blocks: int) -> nn.Sequential:
    return nn.Sequential(_conv(inputs, 2 * inputs, 3, stride=2), *(_Residual(2 * inputs) for _ in range(blocks)))


def _neck(inputs: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        _conv(inputs, channels, 1),
        _conv(channels, 2 * channels, 3),
        _conv(2 * channels, channels, 1),
        _conv(channels, 2 * channels, 3),
        _conv(2 * channels, channels, 1),
    )


class YoloV3(nn.Module):
    """YOLOv3-SPP. It returns (boxes of all scales, raw scores by scale) in eval mode, (None, raw scores by scale) in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 32, 3)
        self.stages = nn.ModuleList(_stage(32 * 2**i, blocks) for i, blocks in enumerate(_STAGES))
        self.pyramid = nn.Sequential(
            _conv(1024, 512, 1),
            _conv(512, 1024, 3),
            _conv(1024, 512, 1),
            _SpatialPyramid(),
            _conv(2048, 512, 1),
            _conv(512, 1024, 3),
            _conv(1024, 512, 1),
        )
        self.narrow = nn.ModuleList([_conv(512, 256, 1), _conv(256, 128, 1)])
        self.necks = nn.ModuleList([_neck(256 + 512, 256), _neck(128 + 256, 128)])
        self.scales = nn.ModuleList([_Scale(512, 32), _Scale(256, 16), _Scale(128, 8)])

    def forward(self, images: Tensor) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """Return boxes in pixels as (batch, box, 5 + classes), None in training mode, and raw scores from coarse to fine."""
        features = [self.stem(images)]
        for stage in self.stages:
            features.append(stage(features[-1]))
        x = self.pyramid(features[-1])
        found = [self.scales[0](x)]
        for i, (narrow, neck) in enumerate(zip(self.narrow, self.necks, strict=True)):
            upsampled = functional.interpolate(narrow(x), scale_factor=2.0, mode="nearest")
            x = neck(torch.cat([upsampled, features[-2 - i]], dim=1))
            found.append(self.scales[i + 1](x))
        raw = tuple(scores for _, scores in found)
        if self.training:
            return None, raw
        return torch.cat([boxes for boxes, _ in found], dim=1), raw


def loss(output: Any, targets: tuple[Tensor, ...]) -> Tensor:
    """Compute squared errors of boxes and cross entropy of classes where an object is, and cross entropy of objectness.

    This is a dense replacement of YOLO's loss, which first matches a list of objects to anchors: it has the same terms, on
    targets that have the shape of the scores.
    """
    total = torch.zeros((), dtype=output[1][0].dtype, device=output[1][0].device)
    for scores, target in zip(output[1], targets, strict=True):
        there = target[..., 4:5]
        offsets = (torch.sigmoid(scores[..., :2]) - target[..., :2]).square()
        sizes = (scores[..., 2:4] - target[..., 2:4]).square()
        kinds = functional.binary_cross_entropy_with_logits(scores[..., 5:], target[..., 5:], reduction="none")
        objectness = functional.binary_cross_entropy_with_logits(scores[..., 4:5], there)
        count = there.sum().clamp(min=1)
        total = total + objectness + (torch.cat([offsets, sizes, kinds], dim=-1) * there).sum() / (CLASSES * count)
    return total


def build_yolov3(batch_size: int, phase: Phase, device: str) -> Built:
    """Build YOLOv3 with images in [0, 1) and, for training, random objects in one of a hundred cells."""
    height, width = _IMAGE_ON_CPU if is_cpu(device) else _IMAGE
    model = YoloV3()
    # The smallest maps have 12x16 or 6x8 cells, so that one image is enough for calibration.
    place = settle(model, device)
    calibrate_batch_norms(model, lambda: model(torch.rand(1, 3, height, width).to(place)))
    images = torch.rand(batch_size, 3, height, width)
    targets = tuple(_target(batch_size, height // stride, width // stride) for stride in _ANCHORS)
    return Built(model, (images,), {}, loss, targets if phase is Phase.TRAINING else None)


def _target(batch: int, ny: int, nx: int) -> Tensor:
    target = torch.rand(batch, 3, ny, nx, CLASSES + 5)
    target[..., 4:] = 0
    target[..., 4] = (torch.rand(batch, 3, ny, nx) < 0.01).float()
    kinds = torch.randint(0, CLASSES, (batch, 3, ny, nx, 1))
    target[..., 5:].scatter_(-1, kinds, 1.0)
    return target
