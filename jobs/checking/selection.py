"""What `check` measures unless it is told otherwise: few models of many kinds, under the configs that find most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from collector.configs.spelling import parse_config
from collector.vocabulary import Cell, Config, Phase
from jobs.plan.planning import CPU_TAG, CPU_TRAINING_TAG, Plan, joined, planned_night, planned_own, selected
from jobs.pool.requested_options import Selection

#: In the order of importance, one of a kind each. Each compiles in 5 to 20 seconds, in training in 10 to 60; Qwen3,
#: speech_transformer and yolov3 take more, and so are left out or not trained.
_MODELS = (
    "huggingface/Qwen3ForCausalLM",  # rotary positions, grouped heads, SwiGLU: what is trained today
    "huggingface/BertForMaskedLM",  # encoder: attention, layer norm, GELU
    "huggingface/T5Small",  # encoder and decoder, relative positions, RMS norm
    "huggingface/ConvNextForImageClassification",  # depthwise convolutions, layer norm over channels
    "timm/mobilenetv2_100",  # many small kernels
    "huggingface/DistillGPT2",  # decoder: causal attention
    "torchvision/resnet18",  # convolutions and batch norm
    "timm/deit_tiny_patch16_224.fb_in1k",  # attention on patches
    "huggingface/PLBartForCausalLM",  # a decoder with learned positions
    "timm/beit_base_patch16_224",  # relative positions as a table
    "torchvision/squeezenet1_1",  # concatenation
    "timm/visformer_small",  # convolutions and attention in one
)
#: Its 28 layers compile for 80 seconds in training.
_NOT_TRAINED = "huggingface/Qwen3ForCausalLM"
#: Plain code generation, and the same in cudagraphs: the latency is then that of the kernels, without the noise of launches,
#: and changes that lose a cudagraph are seen. Tuning configs cost minutes and change with their templates only.
INFERENCE = (Config(template="triton"), Config(template="cudagraphs"))
#: A training step has the partitioner and the backward's kernels, most of them reductions, which inference never compiles.
TRAINING = (Config(template="triton"),)
#: On a CPU there are no cudagraphs; freezing has constant folding and packed weights.
CPU_INFERENCE = (Config(template="triton"), Config(template="freezing"))


def planned_check(device: str, selection: Selection, configs: tuple[str, ...]) -> Plan:
    """The cells of a check, the most important first: what the options select, else the user's own models or the default.

    The whole zoo is measured under the night's configs. Raises what `selected` and `divide` raise.
    """
    asked = tuple(map(parse_config, configs))
    if selection.everything:
        return planned_night(device, selection, configs)
    inference = INFERENCE if device == "cuda" else CPU_INFERENCE
    own, rest = planned_own(device, selection, asked, {Phase.INFERENCE: inference, Phase.TRAINING: TRAINING})
    return joined(own, _of_zoo(device, rest, asked)) if rest else own


def _of_zoo(device: str, selection: Selection, asked: Sequence[Config]) -> Plan:
    """What is selected of the zoo, where no model or suite is named the default models, phase by phase."""
    on_gpu, is_default = device == "cuda", not (selection.suites or selection.models)
    inference = INFERENCE if on_gpu else CPU_INFERENCE
    plans = []
    for phase in map(Phase, selection.phases or ((Phase.INFERENCE,) if asked else Phase)):
        is_training = phase is Phase.TRAINING
        chosen, tags = replace(selection, phases=(phase.value,)), list[str]()
        if is_default and on_gpu:
            left_out = (_NOT_TRAINED,) if is_training else ()
            chosen = replace(chosen, models=tuple(name for name in _MODELS if name not in left_out))
        elif is_default:
            tags = [CPU_TRAINING_TAG if is_training else CPU_TAG]
        plans.append(selected(device, chosen, asked or (TRAINING if is_training else inference), *tags))
    plan = joined(*plans)
    if not (is_default and on_gpu):
        return plan
    # What takes long stands before what is short, and a model's two inference configs do not tune at the same time.
    order = {name: number for number, name in enumerate(_MODELS)}

    def rank(cell: Cell) -> tuple[bool, bool, int]:
        return cell.config == inference[-1], cell.phase is Phase.TRAINING, order[f"{cell.suite}/{cell.model}"]

    return replace(plan, cells=sorted(plan.cells, key=rank))
