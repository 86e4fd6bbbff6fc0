"""Suite torchvision: the image classifiers of PyTorch's torchbench list that torchvision has, with its batch sizes."""

from __future__ import annotations

from collector.zoo.spec import ModelSpec, same_in_both_phases

SUITE = "torchvision"


def _model(name: str, batch: int) -> ModelSpec:
    return ModelSpec(
        suite=SUITE,
        name=name,
        builder="collector.zoo.builders.images:build_torchvision",
        batch_sizes=same_in_both_phases(batch, 2),
        input_note="3x224x224",
        needs=("torch", "torchvision"),
        tags=frozenset({"vision"}),
        params={"name": name},
    )


MODELS: tuple[ModelSpec, ...] = (
    _model("alexnet", 1024),
    _model("densenet121", 64),
    _model("mnasnet1_0", 256),
    _model("mobilenet_v2", 128),
    _model("mobilenet_v3_large", 256),
    _model("resnet18", 512),
    _model("resnet50", 128),
    _model("resnext50_32x4d", 128),
    _model("shufflenet_v2_x1_0", 512),
    _model("squeezenet1_1", 512),
    _model("vgg16", 128),
)
