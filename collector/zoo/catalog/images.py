"""Suites timm and torchvision: the image classifiers of PyTorch's lists with its batch sizes (divisors already applied).

Suite torchvision has those of PyTorch's torchbench list.
"""

from __future__ import annotations

from collector.zoo.spec import ModelSpec, same_in_both_phases

_NOTES = {"timm": "the input size of the model's own data configuration", "torchvision": "3x224x224"}


def _model(suite: str, name: str, batch: int, why_not_on_cpu: str = "") -> ModelSpec:
    return ModelSpec(
        suite=suite,
        name=name,
        builder=f"collector.zoo.builders.images:build_{suite}",
        batch_sizes=same_in_both_phases(batch, None if why_not_on_cpu else 2),
        input_note=_NOTES[suite],
        needs=("torch", suite),
        tags=frozenset({"vision"}),
        notes=why_not_on_cpu,
        params={"name": name},
    )


MODELS: tuple[ModelSpec, ...] = (
    _model("timm", "adv_inception_v3", 128),
    _model("timm", "beit_base_patch16_224", 64),
    _model("timm", "convnextv2_nano.fcmae_ft_in22k_in1k", 128),
    _model("timm", "deit_base_distilled_patch16_224", 64),
    _model("timm", "deit_tiny_patch16_224.fb_in1k", 128),
    _model("timm", "dm_nfnet_f0", 128, "too slow on a CPU"),
    _model("timm", "ghostnet_100", 512),
    _model("timm", "inception_v3", 128),
    _model("timm", "mobilenetv2_100", 128),
    _model("timm", "mobilenetv3_large_100", 512),
    _model("timm", "mobilevit_s", 64),
    _model("timm", "nfnet_l0", 128),
    _model("timm", "repvgg_a2", 128),
    _model("timm", "swin_base_patch4_window7_224", 64, "too slow on a CPU"),
    _model("timm", "tf_efficientnet_b0", 128),
    _model("timm", "visformer_small", 128),
    _model("timm", "vit_base_patch14_dinov2.lvd142m", 128, "518x518 pixels are too slow on a CPU"),
    _model("timm", "vit_base_patch16_siglip_256", 128),
    _model("torchvision", "alexnet", 1024),
    _model("torchvision", "densenet121", 64),
    _model("torchvision", "mnasnet1_0", 256),
    _model("torchvision", "mobilenet_v2", 128),
    _model("torchvision", "mobilenet_v3_large", 256),
    _model("torchvision", "resnet18", 512),
    _model("torchvision", "resnet50", 128),
    _model("torchvision", "resnext50_32x4d", 128),
    _model("torchvision", "shufflenet_v2_x1_0", 512),
    _model("torchvision", "squeezenet1_1", 512),
    _model("torchvision", "vgg16", 128),
)
