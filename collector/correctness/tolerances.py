"""How far a compiled result may be from eager: PyTorch's figures, with the source of each.

They are those of benchmarks/dynamo: `get_tolerance_and_cosine_flag` in huggingface.py, timm_models.py and torchbench.py with
the lists of the yaml files beside them, and the multipliers of `torch._dynamo.utils.same`. Suites `torchvision` and
`torchbenchmark` have models of torchbench's list. `collector.correctness.comparing` says where our rule is stricter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collector.device import is_accelerator
from collector.vocabulary import Cell, Phase

#: Tensors with fewer elements have a noisy RMSE (`torch._dynamo.utils.same`).
SMALL = 1000

#: A tenth of a `tol` is the share of a tensor's size that any error may have; 2^-10 is the distance of two neighbouring numbers
#: in TensorFloat-32, which has ten bits behind the point (NVIDIA A100 whitepaper).
_TF32 = 10 * 2.0**-10
#: For suites that PyTorch does not have.
_DEFAULT = 1e-3

#: huggingface.py, which runs language models as well, and timm_models.py.
_BY_PHASE = {Phase.INFERENCE: 1e-3, Phase.TRAINING: 1e-2}
#: `higher_training`, `higher_inference` and `higher_inference_cpu` of huggingface.yaml.
_HUGGINGFACE = {
    ("MT5ForConditionalGeneration", Phase.TRAINING): 2e-2,
    ("BertForMaskedLM", Phase.TRAINING): 2e-2,
    ("GPT2ForSequenceClassification", Phase.INFERENCE): 4e-3,
}
_HUGGINGFACE_CPU = _HUGGINGFACE | {("GPT2ForSequenceClassification", Phase.INFERENCE): 5e-3}

#: `higher_training`, `even_higher`, `highest_training` and `freezing` of timm_models.yaml.
_TIMM_TRAINING = {
    "inception_v3": 4e-2,
    "mobilenetv3_large_100": 4e-2,
    "deit_base_distilled_patch16_224": 8e-2,
    "vit_base_patch16_siglip_256": 8e-2,
    "beit_base_patch16_224": 16e-2,
}
_TIMM_FROZEN = {"adv_inception_v3": 8e-2}

#: torchbench.py with `higher_fp16`, `higher_bf16`, `even_higher` and `freezing` of torchbench.yaml. `even_higher` holds for
#: float16 and autocast, and for training on a GPU; never for inference in bfloat16 or float32.
_TORCHBENCH = 1e-4
_TORCHBENCH_HIGHER = 1e-3  # float16, autocast, and training on a GPU
_TORCHBENCH_BFLOAT16 = {"doctr_reco_predictor": 1e-2, "drq": 1e-2}
_TORCHBENCH_FLOAT16 = _TORCHBENCH_BFLOAT16 | {"phlippe_resnet": 1e-2}
_TORCHBENCH_EVEN_HIGHER = dict.fromkeys(
    ("soft_actor_critic", "tacotron2", "yolov3", "squeezenet1_1", "shufflenet_v2_x1_0"), 8e-2
)
_TORCHBENCH_FROZEN = {"mobilenet_v2": 8e-2}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`tol` is absolute and relative, against tensors of magnitude one; `multiplier` bounds the ratio of RMSEs."""

    tol: float
    multiplier: float

    def multiplier_for(self, shape: Sequence[int]) -> float:
        """The multiplier of a tensor of this shape.

        Few elements give a noisy RMSE: 10 up to 10 elements and 8 up to 500, which PyTorch gives to models by name, each
        after it had failed. The 3 for tensors below a thousand elements and for weights of 1x1 convolutions is PyTorch's.
        """
        numel = math.prod(shape)
        if numel <= 10:
            return max(10.0, self.multiplier)
        if numel <= 500:
            return max(8.0, self.multiplier)
        of_a_point = len(shape) == 4 and shape[-1] == shape[-2] == 1
        return max(3.0, self.multiplier) if numel < SMALL or of_a_point else self.multiplier


def tolerance_for(cell: Cell, own: float | None = None, allows_tf32: bool = False) -> Tolerance:
    """The tolerance that PyTorch gives the cell, or one with the `own` tol that a user gives their model.

    Where a float32 program may multiply in TensorFloat-32, a library takes it for one shape or memory format and not for
    another: eager may have computed the same in float32. Then an error of TensorFloat-32's own rounding is allowed (`_TF32`).

    The multiplier is 3 in reduced precision and from a `tol` of 2e-2, else 2.
    Under autocast PyTorch takes 2 for the gradients, which are float32: it has passed most of those by `allclose` before.
    They are as noisy as what they are computed from, and get 3 here.
    """
    tol = runner_tol(cell) if own is None else own
    if own is None and allows_tf32 and cell.dtype == "float32" and is_accelerator(cell.device):
        tol = max(tol, _TF32)
    return Tolerance(tol, 3.0 if cell.dtype != "float32" or tol >= 2e-2 else 2.0)


def runner_tol(cell: Cell) -> float:
    """Return the `tol` that PyTorch's runner gives the cell; a thousandth for suites that it does not have."""
    if cell.suite == "huggingface":
        by_model = _HUGGINGFACE_CPU if cell.device == "cpu" else _HUGGINGFACE
        return by_model.get((cell.model, cell.phase), _BY_PHASE[cell.phase])
    if cell.suite == "llm":
        return _BY_PHASE[cell.phase]
    if cell.suite == "timm":
        special = _TIMM_TRAINING if cell.phase is Phase.TRAINING else _TIMM_FROZEN if _is_frozen(cell) else {}
        return special.get(cell.model, _BY_PHASE[cell.phase])
    if cell.suite in ("torchbench", "torchvision", "torchbenchmark"):
        return _torchbench(cell)
    return _DEFAULT


def _torchbench(cell: Cell) -> float:
    if cell.dtype in ("float16", "amp", "amp_bfloat16"):
        frozen = _TORCHBENCH_FROZEN if _is_frozen(cell) else {}
        return (frozen | _TORCHBENCH_FLOAT16 | _TORCHBENCH_EVEN_HIGHER).get(cell.model, _TORCHBENCH_HIGHER)
    if cell.dtype == "bfloat16" and cell.model in _TORCHBENCH_BFLOAT16:
        return _TORCHBENCH_BFLOAT16[cell.model]
    if cell.phase is Phase.TRAINING and cell.device != "cpu":
        return _TORCHBENCH_EVEN_HIGHER.get(cell.model, _TORCHBENCH_HIGHER)
    return _TORCHBENCH


def _is_frozen(cell: Cell) -> bool:
    requested = cell.config.overrides.get("freezing", cell.config.freezing)
    return bool(cell.config.template == "freezing" if requested is None else requested)
