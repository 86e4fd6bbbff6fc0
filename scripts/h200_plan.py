"""Plans of the H200 nights under data/h200, as `nightly --plan` reads them; what matters most comes first.

python scripts/h200_plan.py NAME [--without BUNDLE...] > plan.json      a wrong name is told the names

--without leaves out what some bundles have, whatever became of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from collector.bundle import read_bundle
from collector.spelling import parse_config
from collector.vocabulary import Cell, Phase
from collector.zoo.registry import all_models, find

#: Measured under everything: three text models, four of images, and two of those that graph partitions were made for.
CORE = (
    "huggingface/BertForMaskedLM",
    "huggingface/DistillGPT2",
    "huggingface/T5Small",
    "timm/mobilenetv2_100",
    "timm/deit_tiny_patch16_224.fb_in1k",
    "torchvision/resnet18",
    "torchvision/squeezenet1_1",
    "torchbench/yolov3",
    "torchbench/speech_transformer",
)
TRAINED = ("huggingface/DistillGPT2", "huggingface/T5Small", "torchvision/resnet18")
ALSO_TRAINED = (
    "huggingface/BertForMaskedLM",
    "huggingface/DistilBertForMaskedLM",
    "huggingface/ElectraForCausalLM",
    "huggingface/OPTForCausalLM",
    "huggingface/ViTForImageClassification",
    "timm/mobilenetv2_100",
    "timm/deit_tiny_patch16_224.fb_in1k",
    "timm/visformer_small",
    "torchvision/resnet50",
    "torchvision/mobilenet_v3_large",
    "torchvision/squeezenet1_1",
)
#: Programs that time no candidates for matrix products; `default` is `triton` again, for an A/A comparison in every night.
CHEAP = ("triton", "default", "cudagraphs", "reduce-overhead", "aten", "freezing", "cutlass")
TUNED = ("max_autotune", "max-autotune-no-cudagraphs", "tma", "max-autotune")
PARTITIONS = ("cudagraphs+graph_partition=false", "cudagraphs+graph_partition=true")
#: A dozen models for the two ways of working through a plan, and six configs of theirs.
WAYS = (
    *CORE[:7],
    "huggingface/ElectraForCausalLM",
    "huggingface/ViTForImageClassification",
    "timm/visformer_small",
    "torchvision/resnet50",
    "torchvision/mobilenet_v3_large",
)
#: As many more: with them a night is long enough to be divided among several GPUs.
OTHERS = (
    "huggingface/AlbertForMaskedLM",
    "huggingface/GPT2ForSequenceClassification",
    "huggingface/DistilBertForMaskedLM",
    "huggingface/LayoutLMForMaskedLM",
    "huggingface/OPTForCausalLM",
    "huggingface/RobertaForCausalLM",
    "timm/adv_inception_v3",
    "timm/ghostnet_100",
    "timm/repvgg_a2",
    "torchvision/alexnet",
    "torchvision/densenet121",
    "torchvision/vgg16",
)
#: What takes long to compile, by the learned cost, last: a borrowed machine may end before they do.
LONG = (
    "huggingface/T5ForConditionalGeneration",
    "timm/vit_base_patch16_siglip_256",
    "timm/adv_inception_v3",
    "huggingface/MT5ForConditionalGeneration",
    "timm/mobilevit_s",
    "huggingface/MobileNetV2ForImageClassification",
    "timm/tf_efficientnet_b0",
    "huggingface/MegatronBertForCausalLM",
    "torchvision/shufflenet_v2_x1_0",
    "huggingface/XLNetLMHeadModel",
    "huggingface/MobileBertForMaskedLM",
    "huggingface/M2M100ForConditionalGeneration",
    "huggingface/YituTechConvBert",
    "timm/ghostnet_100",
    "timm/mobilenetv3_large_100",
    "huggingface/XGLMForCausalLM",
    "huggingface/DebertaV2ForMaskedLM",
    "torchvision/densenet121",
    "timm/nfnet_l0",
    "huggingface/AllenaiLongformerBase",
    "huggingface/BlenderbotForCausalLM",
)
WAYS_CONFIGS = ("triton", "cudagraphs", "freezing", "aten", "default", "cudagraphs+graph_partition=false")


def cells(models: Iterable[str], configs: Iterable[str], phase: Phase, dtype: str) -> list[Cell]:
    """The cells of some models under some configs, config by config; a model that does not take the dtype is left out."""
    found = []
    specs = [find(*name.split("/", 1)) for name in models]
    for config in configs:
        for spec in specs:
            if spec.supports(phase, "cuda", dtype):
                batch_size = spec.batch_size(phase, "cuda")
                found.append(Cell(spec.suite, spec.name, phase, dtype, "cuda", batch_size, parse_config(config)))
    return found


def tuned() -> list[Cell]:
    """The core under the templates and modes that autotune matrix products; some of it training."""
    return [
        *cells(CORE, TUNED[:3], Phase.INFERENCE, "bfloat16"),
        *cells(TRAINED, ("max_autotune", "tma"), Phase.TRAINING, "amp"),
        *cells(CORE, TUNED[3:], Phase.INFERENCE, "bfloat16"),
    ]


def night() -> list[Cell]:
    """The core, some of it training, then the zoo, then a dozen models training, under all that tunes no matrix products."""
    everything = [str(spec) for spec in all_models()]
    inference, training = Phase.INFERENCE, Phase.TRAINING
    return [
        *cells(("torchbench/speech_transformer", "torchbench/yolov3"), PARTITIONS, inference, "bfloat16"),
        *cells(("torchbench/vision_maskrcnn",), PARTITIONS, inference, "float16"),
        *cells(TRAINED, (*CHEAP, "cpp_wrapper"), training, "amp"),
        *cells(CORE, (*CHEAP, "cpp_wrapper"), inference, "bfloat16"),
        *cells(everything, CHEAP, inference, "bfloat16"),
        *cells(ALSO_TRAINED, ("triton", "cudagraphs"), training, "amp"),
        *cells(("torchbench/speech_transformer", "torchbench/yolov3"), PARTITIONS, training, "amp"),
        *cells(everything, ("cpp_wrapper",), inference, "bfloat16"),
        *cells(ALSO_TRAINED, ("cpp_wrapper",), training, "amp"),
    ]


def again() -> list[Cell]:
    """What is measured a second time by the same code, for an A/A comparison of two runs."""
    return cells(
        dict.fromkeys((*CORE, *WAYS)), ("triton", "cudagraphs", "aten", "freezing"), Phase.INFERENCE, "bfloat16"
    )


def ways() -> list[Cell]:
    """What is measured both by a process a cell in sequence and by the pool."""
    return cells(WAYS, WAYS_CONFIGS, Phase.INFERENCE, "bfloat16")


def others() -> list[Cell]:
    """The same configs of as many other models."""
    return cells(OTHERS, WAYS_CONFIGS, Phase.INFERENCE, "bfloat16")


def scaling() -> list[Cell]:
    """Both together, for several GPUs."""
    return [*ways(), *others()]


def trained() -> list[Cell]:
    """Training beyond the core."""
    return cells(ALSO_TRAINED, ("triton", "cudagraphs"), Phase.TRAINING, "amp")


def tuned_training() -> list[Cell]:
    """What of the core trains, with tuned matrix products."""
    return cells(TRAINED, ("max_autotune", "tma"), Phase.TRAINING, "amp")


def proof() -> list[Cell]:
    """Twenty models, those of the ways that compile fastest, under two configs: what verdicts are proved with."""
    slow = ("mobilenet_v3_large", "adv_inception_v3", "ghostnet_100", "densenet121")
    fast = [name for name in (*WAYS, *OTHERS) if not name.endswith(slow)]
    return cells(fast, ("triton", "cudagraphs"), Phase.INFERENCE, "bfloat16")


def partitions() -> list[Cell]:
    """The three models that graph partitions were made for, without and with them, inference and training."""
    fast = ("torchbench/speech_transformer", "torchbench/yolov3")
    return [
        *cells(fast, PARTITIONS, Phase.TRAINING, "amp"),
        *cells(("torchbench/vision_maskrcnn",), PARTITIONS, Phase.INFERENCE, "float16"),
        *cells(fast, PARTITIONS, Phase.INFERENCE, "bfloat16"),
    ]


def partitions_training() -> list[Cell]:
    """Two of them training, the slower one first; the third crashes its process there."""
    return cells(("torchbench/vision_maskrcnn", "torchbench/yolov3"), PARTITIONS, Phase.TRAINING, "amp")


def rest() -> list[Cell]:
    """What the earlier nights had no time for: the rest of the zoo under three more templates, a dozen models training."""
    everything = [str(spec) for spec in all_models()]
    others = [name for name in everything if name not in (*CORE, *WAYS, *OTHERS)]
    return [
        *cells(ALSO_TRAINED, ("triton", "cudagraphs"), Phase.TRAINING, "amp"),
        *cells(others, ("aten", "freezing"), Phase.INFERENCE, "bfloat16"),
        *cells((name for name in everything if name not in CORE), ("cpp_wrapper",), Phase.INFERENCE, "bfloat16"),
        *cells(ALSO_TRAINED, ("cpp_wrapper",), Phase.TRAINING, "amp"),
    ]


def remaining() -> list[Cell]:
    """The zoo's training beyond the dozen, before and after the rest: with it every model has met what tunes no GEMMs."""
    others = [name for name in map(str, all_models()) if name not in (*TRAINED, *ALSO_TRAINED)]
    return [
        *cells(others, ("triton",), Phase.TRAINING, "amp"),
        *rest(),
        *cells(others, ("cudagraphs",), Phase.TRAINING, "amp"),
    ]


def tuned_rest() -> list[Cell]:
    """The zoo beyond the core with tuned matrix products, what takes longest last."""
    others = [name for name in map(str, all_models()) if name not in (*CORE, *LONG)]
    return [
        *cells(others, ("max_autotune", "tma"), Phase.INFERENCE, "bfloat16"),
        *cells(LONG, ("max_autotune", "tma"), Phase.INFERENCE, "bfloat16"),
    ]


def on_cpu() -> list[Cell]:
    """The zoo on the host's CPU, as far as models have a batch for one: which of them pass there."""
    return [
        Cell(
            spec.suite,
            spec.name,
            Phase.INFERENCE,
            "float32",
            "cpu",
            spec.batch_size(Phase.INFERENCE, "cpu"),
            parse_config("triton"),
        )
        for spec in all_models()
        if spec.supports(Phase.INFERENCE, "cpu", "float32")
    ]


def left(planned: Iterable[Cell], bundles: Iterable[Path]) -> list[Cell]:
    """The cells of a plan, each once, that no bundle has."""
    had = {item.cell.cell_id for path in bundles for item in read_bundle(path).latest().values()}
    return [cell for name, cell in {cell.cell_id: cell for cell in planned}.items() if name not in had]


def main() -> None:
    """Prints the plan asked for."""
    plans = {
        "night": night,
        "tuned": tuned,
        "tuned-training": tuned_training,
        "aa": again,
        "ways": ways,
        "others": others,
        "scaling": scaling,
        "trained": trained,
        "proof": proof,
        "partitions": partitions,
        "partitions-training": partitions_training,
        "rest": rest,
        "remaining": remaining,
        "tuned-rest": tuned_rest,
        "cpu": on_cpu,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=plans)
    parser.add_argument("--without", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    print(json.dumps({"cells": [cell.to_json() for cell in left(plans[options.name](), options.without)]}))


if __name__ == "__main__":
    main()
