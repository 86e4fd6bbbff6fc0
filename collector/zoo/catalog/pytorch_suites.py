"""Suites huggingface, timm, torchvision and torchbench: PyTorch's lists with its batch sizes.

Everything is built from configuration classes. The batch sizes on an accelerator are the ones that PyTorch's benchmarks/dynamo
uses on an A100, so that a row here has a counterpart on its dashboard; the batch sizes on a CPU are ours.

These models of PyTorch's list are missing: Llama-3.2-1B, gemma-2-2b, gemma-3-4b, Mistral-7B, gpt-oss-20b and whisper-tiny, whose
sizes and inputs come from a hub (Qwen3-0.6B is here with its sizes written out, as a forward pass and not as `generate`; suite
`llm` has prefill and decode of some of them); Reformer, GPT-J, GPT-Neo and BlenderbotForConditionalGeneration, which PyTorch
skips as well.

Suite torchvision has the torchvision models of PyTorch's torchbench list.

The three models of suite torchbench have a value on the CPU in the middle of their program, for which cudagraphs give up the
whole graph unless `graph_partition` cuts it: a NumPy scalar (speech_transformer), a tensor of grid sizes (yolov3), index tensors
of data-dependent length (vision_maskrcnn).

Suites from outside are GraphNet's samples and an installed torchbenchmark; none of their code is executed to list them. The
variable `INDUCTOR_WATCH_GRAPHNET` names the folder of the samples: a checkout's `samples`, or any part of it. A model's name is
the path of its sample in this folder, such as `timm/resnet18`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from collector.usage_errors import ZooError
from collector.vocabulary import AS_IS, DTYPES, Phase
from collector.zoo.spec import ACCELERATOR, ModelSpec, same_in_both_phases

HUGGINGFACE = "huggingface"
_NEEDS = ("torch", "transformers")
#: The tag of models for a night on a CPU: few distinct kernels, so that a cold compilation is quick, and little arithmetic.
_NIGHT = "cpu-night"
#: Sizes from config.json in Qwen/Qwen3-0.6B.
QWEN3_06B = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def _text(
    name: str,
    batch: int,
    length: int,
    cpu_length: int | None = 64,
    *,
    architecture: str | None = None,
    config: Mapping[str, Any] | None = None,
    dtypes: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    notes: str = "",
) -> ModelSpec:
    on_cpu = f"seq {cpu_length}" if cpu_length else "not measured"
    return ModelSpec(
        suite=HUGGINGFACE,
        name=name,
        builder="collector.zoo.builders.transformers_models:build_text",
        batch_sizes=same_in_both_phases(batch, 1 if cpu_length else None),
        input_note=f"seq {length}; on cpu {on_cpu}",
        needs=_NEEDS,
        dtypes=dtypes,
        tags=frozenset({"text", *tags}),
        notes=notes,
        params={
            "architecture": architecture or name,
            "config": config or {},
            "length": length,
            "cpu_length": cpu_length or length,
        },
    )


def _vision(
    name: str, batch: int, *tags: str, architecture: str | None = None, config: Mapping[str, Any] | None = None
) -> ModelSpec:
    return ModelSpec(
        suite=HUGGINGFACE,
        name=name,
        builder="collector.zoo.builders.transformers_models:build_vision",
        batch_sizes=same_in_both_phases(batch, 1),
        input_note="3x224x224",
        needs=_NEEDS,
        tags=frozenset({"vision", *tags}),
        notes="not on PyTorch's list: a vision model for hosts without torchvision",
        params={"architecture": architecture or name, "config": config or {}},
    )


HUGGINGFACE_MODELS: tuple[ModelSpec, ...] = (
    _text("AlbertForMaskedLM", 4, 512, None, notes="the library's default is the xxlarge model: too slow on a CPU"),
    _text(
        "AllenaiLongformerBase",
        4,
        1024,
        None,
        architecture="LongformerForMaskedLM",
        config={"attention_window": 512, "max_position_embeddings": 4098},
        notes="its attention window pads every input to 512 tokens, too slow on a CPU; breaks the graph 4 times; the "
        "vocabulary is the library's default of 30,522 tokens, PyTorch's has 50,265",
    ),
    _text("BartForCausalLM", 4, 1024),
    _text("BertForMaskedLM", 16, 512),
    _text("BlenderbotForCausalLM", 4, 128, None, notes="2.5 billion parameters: too large for a CPU"),
    _text("DebertaV2ForMaskedLM", 2, 512, None, notes="too slow on a CPU; PyTorch skips it for now"),
    _text("DistilBertForMaskedLM", 128, 128, 32, tags=(_NIGHT,)),
    _text("DistillGPT2", 16, 512, 32, architecture="GPT2LMHeadModel", config={"n_layer": 6}),
    _text("ElectraForCausalLM", 32, 512, 64, tags=(_NIGHT,)),
    _text("GPT2ForSequenceClassification", 4, 1024, config={"pad_token_id": 0}),
    _text(
        "GoogleFnet",
        16,
        512,
        32,
        architecture="FNetForMaskedLM",
        dtypes=("float32",),
        tags=(_NIGHT,),
        notes="its FFT is float32 only: PyTorch measures it so as well, and lists it under the dtype of the night",
    ),
    _text("LayoutLMForMaskedLM", 16, 512),
    _text("M2M100ForConditionalGeneration", 16, 128, 16),
    _text("MBartForCausalLM", 4, 1024, 32),
    _text("MT5ForConditionalGeneration", 16, 128, 32),
    _text("MegatronBertForCausalLM", 4, 512, 16),
    _text("MobileBertForMaskedLM", 128, 128, 64),
    _text("OPTForCausalLM", 2, 2048, 32),
    _text("PLBartForCausalLM", 8, 1024, 32, tags=(_NIGHT,)),
    _text("PegasusForCausalLM", 32, 128, 32),
    _text("Qwen3ForCausalLM", 4, 512, 16, config=QWEN3_06B, notes="the 0.6B model's sizes; a prefill, not `generate`"),
    _text(
        "RobertaForCausalLM",
        16,
        512,
        # Two positions more than the default: positions start behind the padding index, so that 512 tokens need 514.
        # (PyTorch keeps 512 and feeds padding tokens only, which makes every position compute the same.)
        config={"max_position_embeddings": 514},
    ),
    _text("T5ForConditionalGeneration", 4, 1024),
    _text(
        "T5Small",
        4,
        1024,
        architecture="T5ForConditionalGeneration",
        notes="offline the same program as T5ForConditionalGeneration, under PyTorch's other name for it",
    ),
    _text("TrOCRForCausalLM", 32, 256, 32),
    _text("XGLMForCausalLM", 8, 128, 16),
    _text("XLNetLMHeadModel", 8, 512, 16),
    _text("YituTechConvBert", 16, 512, architecture="ConvBertForMaskedLM"),
    _vision("ConvNextForImageClassification", 64),
    _vision("MobileNetV2ForImageClassification", 128),
    _vision("ResNetForImageClassification", 128),
    _vision(
        "ResNet18ForImageClassification",
        256,
        _NIGHT,
        architecture="ResNetForImageClassification",
        config={"layer_type": "basic", "depths": (2, 2, 2, 2), "hidden_sizes": (64, 128, 256, 512)},
    ),
    _vision("ViTForImageClassification", 64),
    _vision(
        "ViTTinyForImageClassification",
        256,
        _NIGHT,
        "cpu-training",
        architecture="ViTForImageClassification",
        config={"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
    ),
)


_NOTES = {"timm": "the input size of the model's own data configuration", "torchvision": "3x224x224"}


def _model(suite: str, name: str, batch: int, why_not_on_cpu: str = "") -> ModelSpec:
    return ModelSpec(
        suite=suite,
        name=name,
        builder=f"collector.zoo.builders.image_models:build_{suite}",
        batch_sizes=same_in_both_phases(batch, None if why_not_on_cpu else 2),
        input_note=_NOTES[suite],
        needs=("torch", suite),
        tags=frozenset({"vision"}),
        notes=why_not_on_cpu,
        params={"name": name},
    )


IMAGE_MODELS: tuple[ModelSpec, ...] = (
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


TORCHBENCH = "torchbench"
_TAG = "graph-partition"

TORCHBENCH_MODELS: tuple[ModelSpec, ...] = (
    ModelSpec(
        suite=TORCHBENCH,
        name="speech_transformer",
        builder="collector.zoo.builders.speech_transformer:build",
        batch_sizes={Phase.INFERENCE: {ACCELERATOR: 1, "cpu": 1}, Phase.TRAINING: {ACCELERATOR: 32, "cpu": 2}},
        input_note="160 frames of 320 features, 20 characters",
        needs=("torch", "numpy"),
        tags=frozenset({_TAG, "speech"}),
        notes="written from the paper, on random frames: breaks the graph 5 times where PyTorch lists 10; its attention divides "
        "by a NumPy scalar, which the compiler sees as a tensor on the CPU",
    ),
    ModelSpec(
        suite=TORCHBENCH,
        name="vision_maskrcnn",
        builder="collector.zoo.builders.image_models:build_maskrcnn",
        batch_sizes=same_in_both_phases(1, None),
        input_note="one image, 3x480x640, resized to 3x800x1066",
        needs=("torch", "torchvision"),
        # torchvision's RoI align has no bfloat16 kernel; under autocast it runs in float32. PyTorch forces float16.
        dtypes=("float32", "float16", "amp"),
        tags=frozenset({_TAG, "vision"}),
        notes="too slow on a CPU; many graph breaks, and detections that depend on random scores",
    ),
    ModelSpec(
        suite=TORCHBENCH,
        name="yolov3",
        builder="collector.zoo.builders.image_models:build_yolov3",
        batch_sizes=same_in_both_phases(8, 1),
        input_note="3x384x512; on cpu 3x192x256",
        tags=frozenset({_TAG, "vision"}),
        notes="a re-implementation whose loss compares dense targets, where YOLO's matches objects to anchors; every call in "
        "eval mode stores a tensor of grid sizes on the CPU",
    ),
)


GRAPHNET = "graphnet"
#: The variable that names the folder of GraphNet's samples.
VARIABLE = "INDUCTOR_WATCH_GRAPHNET"
_NAME = re.compile(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*", re.ASCII)
_NOTE = "the sample's own shapes, drawn from its recorded mean and deviation"


def samples_folder() -> Path:
    """Return the folder of GraphNet's samples. Raises `ZooError` if the variable is not set, or the folder is not there."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise ZooError(f"suite {GRAPHNET} needs {VARIABLE}, the folder of GraphNet's samples")
    folder = Path(named)
    if not folder.is_dir():
        raise ZooError(f"{VARIABLE} names no folder: {named}")
    return folder


def graphnet_model(name: str) -> ModelSpec:
    """Return the model of one sample. Raises `ZooError` if there is no such sample, or it needs another framework or devices."""
    description = samples_folder() / name / "graph_net.json"
    if not _NAME.fullmatch(name) or not description.is_file():
        raise ZooError(
            f"suite {GRAPHNET} has no model {name!r}: names are folders with a graph_net.json under {VARIABLE}"
        )
    try:
        about = json.loads(description.read_text())
        framework, devices = about["framework"], int(about.get("num_devices_required") or 1)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(
            f"{GRAPHNET}/{name}: its graph_net.json cannot be read ({type(error).__name__}: {error})"
        ) from error
    if framework != "torch" or devices != 1:
        raise ZooError(f"{GRAPHNET}/{name} is a sample for {framework} on {devices} devices, not for torch on one")
    return ModelSpec(
        suite=GRAPHNET,
        name=name,
        builder="collector.zoo.builders.outside_models:build_graphnet",
        batch_sizes={Phase.INFERENCE: {ACCELERATOR: 1, "cpu": 1}},
        dtypes=(AS_IS, *(dtype for dtype in DTYPES if dtype != AS_IS)),
        input_note=_NOTE,
        notes="a captured graph: its batch size is part of it and counts as 1",
        params={"sample": name},
    )


def graphnet_models(patterns: list[str]) -> tuple[ModelSpec, ...]:
    """Return the samples whose `name` or `graphnet/name` is like one of the patterns, or all samples without patterns.

    Samples for another framework or several devices are left out if a wildcard matches them. `@FILE` stands for the names in a
    file, one a line, as in the lists of GraphNet's repository. Raises `ZooError` if there is no folder of samples or no such
    file, or a pattern without a wildcard is no sample's name.
    """
    folder = samples_folder()
    names = sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob("graph_net.json"))
    wanted = [name for pattern in patterns for name in _spelt_out(pattern.removeprefix(f"{GRAPHNET}/"))] or ["*"]
    exact = [graphnet_model(pattern) for pattern in wanted if not set(pattern) & set("*?[")]
    like = [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]
    found = {spec.name: spec for spec in exact}
    for name in like:
        with suppress(ZooError):  # it was requested by a wildcard only
            found.setdefault(name, graphnet_model(name))
    return tuple(found.values())


def _spelt_out(pattern: str) -> list[str]:
    if not pattern.startswith("@"):
        return [pattern]
    try:
        lines = Path(pattern[1:]).read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ZooError(f"the list of samples {pattern[1:]} cannot be read ({type(error).__name__})") from error
    names = [line.strip().removeprefix("samples/") for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise ZooError(f"the list of samples {pattern[1:]} is empty: write a name a line")
    return names


TORCHBENCHMARK = "torchbenchmark"
#: The names under which a model's class has its batch sizes; without them the batch size is 1.
_SIZES = {Phase.INFERENCE: "DEFAULT_EVAL_BSIZE", Phase.TRAINING: "DEFAULT_TRAIN_BSIZE"}


def torchbenchmark_model(name: str) -> ModelSpec:
    """Return the model of this name, with the batch sizes from its source. Raises `ZooError` if there is none."""
    path = _models_folder() / name / "__init__.py"
    if not name.isidentifier() or not path.is_file():
        raise ZooError(
            f"suite {TORCHBENCHMARK} has no model {name!r}: the installed package has no folder of that name"
        )
    sizes = _sizes(path)
    return ModelSpec(
        suite=TORCHBENCHMARK,
        name=name,
        builder="collector.zoo.builders.outside_models:build_torchbenchmark",
        batch_sizes={phase: dict.fromkeys((ACCELERATOR, "cpu"), sizes.get(word, 1)) for phase, word in _SIZES.items()},
        input_note="what the package makes for it",
        needs=("torch", "torchbenchmark"),
        params={"name": name},
    )


def torchbenchmark_models(patterns: list[str]) -> tuple[ModelSpec, ...]:
    """Return the installed models whose `name` or `torchbenchmark/name` is like one of the patterns, or all without patterns.

    Raises `ZooError` if the package is not installed or a pattern matches nothing.
    """
    names = sorted(path.parent.name for path in _models_folder().glob("*/__init__.py"))
    wanted = [pattern.removeprefix(f"{TORCHBENCHMARK}/") for pattern in patterns] or ["*"]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ZooError(
                f"suite {TORCHBENCHMARK} has no model like {pattern!r}: the installed package has {len(names)} others"
            )
    return tuple(torchbenchmark_model(name) for name in names if any(fnmatchcase(name, word) for word in wanted))


def _models_folder() -> Path:
    found = importlib.util.find_spec("torchbenchmark")
    if found is None or not found.submodule_search_locations:
        raise ZooError(f"suite {TORCHBENCHMARK} needs torchbenchmark: install it from a checkout of pytorch/benchmark")
    return Path(found.submodule_search_locations[0]) / "models"


def _sizes(path: Path) -> dict[str, int]:
    """Return the positive integers that the classes of a file assign to the names in `_SIZES`."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    sizes = {}
    for line in (line for node in tree.body if isinstance(node, ast.ClassDef) for line in node.body):
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(size))):
                if name in _SIZES.values() and size > 0:
                    sizes[name] = size
    return sizes
