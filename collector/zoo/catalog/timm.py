"""Suite timm: PyTorch's list of timm models with its batch sizes (its divisors are already applied)."""

from __future__ import annotations

from collector.zoo.spec import ModelSpec, same_in_both_phases

SUITE = "timm"


def _model(name: str, batch: int, *, on_cpu: bool = True, notes: str = "") -> ModelSpec:
    return ModelSpec(
        suite=SUITE,
        name=name,
        builder="collector.zoo.builders.images:build_timm",
        batch_sizes=same_in_both_phases(batch, 2 if on_cpu else None),
        input_note="the input size of the model's own data configuration",
        needs=("torch", "timm"),
        tags=frozenset({"vision"}),
        notes=notes,
        params={"name": name},
    )


MODELS: tuple[ModelSpec, ...] = (
    _model("adv_inception_v3", 128),
    _model("beit_base_patch16_224", 64),
    _model("convnextv2_nano.fcmae_ft_in22k_in1k", 128),
    _model("deit_base_distilled_patch16_224", 64),
    _model("deit_tiny_patch16_224.fb_in1k", 128),
    _model("dm_nfnet_f0", 128, on_cpu=False, notes="too slow on a CPU"),
    _model("ghostnet_100", 512),
    _model("inception_v3", 128),
    _model("mobilenetv2_100", 128),
    _model("mobilenetv3_large_100", 512),
    _model("mobilevit_s", 64),
    _model("nfnet_l0", 128),
    _model("repvgg_a2", 128),
    _model("swin_base_patch4_window7_224", 64, on_cpu=False, notes="too slow on a CPU"),
    _model("tf_efficientnet_b0", 128),
    _model("visformer_small", 128),
    _model("vit_base_patch14_dinov2.lvd142m", 128, on_cpu=False, notes="518x518 pixels are too slow on a CPU"),
    _model("vit_base_patch16_siglip_256", 128),
)
