"""How far a compiled result may be from eager: one table, with the source of each figure.

The figures are PyTorch's, of benchmarks/dynamo: `get_tolerance_and_cosine_flag` in huggingface.py, timm_models.py and
torchbench.py with the lists of the yaml files beside them, and the multipliers of `torch._dynamo.utils.same`. PyTorch gives
them by suite, phase, dtype and device, and to some models by name. Suite `torchvision` has models of torchbench's list.

`tol` is not what lets a result pass where there is a usable reference: `collector.correctness.comparing` says where
it is stricter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.vocabulary import Cell, Phase

#: Tensors with fewer elements have a noisy RMSE (`torch._dynamo.utils.same`).
SMALL = 1000

#: For suites that PyTorch does not have.
_DEFAULT = 1e-3

#: huggingface.py with `higher_training`, `higher_inference` and `higher_inference_cpu` of huggingface.yaml.
_HUGGINGFACE = {Phase.INFERENCE: 1e-3, Phase.TRAINING: 1e-2}
_HUGGINGFACE_MODELS = {
    ("MT5ForConditionalGeneration", Phase.TRAINING): 2e-2,
    ("GPT2ForSequenceClassification", Phase.INFERENCE): 4e-3,
}
_HUGGINGFACE_CPU = {("GPT2ForSequenceClassification", Phase.INFERENCE): 5e-3}

#: timm_models.py with `higher_training`, `even_higher`, `highest_training` and `freezing` of timm_models.yaml.
_TIMM = {Phase.INFERENCE: 1e-3, Phase.TRAINING: 1e-2}
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
_TORCHBENCH_FLOAT16_OR_AMP = 1e-3
_TORCHBENCH_GPU_TRAINING = 1e-3
_TORCHBENCH_HIGHER_FLOAT16 = dict.fromkeys(("doctr_reco_predictor", "drq", "phlippe_resnet"), 1e-2)
_TORCHBENCH_HIGHER_BFLOAT16 = dict.fromkeys(("doctr_reco_predictor", "drq"), 1e-2)
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

        Few elements give a noisy RMSE: 10 up to 10 elements and 8 up to 500. PyTorch gives these to models by name, each
        after it had failed; here they hold for all. The 3 for tensors below a thousand elements and for weights of 1x1
        convolutions is PyTorch's for all.
        """
        numel = 1
        for extent in shape:
            numel *= extent
        if numel <= 10:
            return max(10.0, self.multiplier)
        if numel <= 500:
            return max(8.0, self.multiplier)
        of_a_point = len(shape) == 4 and shape[-1] == shape[-2] == 1
        return max(3.0, self.multiplier) if numel < SMALL or of_a_point else self.multiplier


def tolerance_for(cell: Cell) -> Tolerance:
    """The tolerance that PyTorch gives the cell.

    The multiplier is 3 in reduced precision and at a `tol` of 2e-2 and above, else 2. Under autocast PyTorch takes 3 for
    bfloat16 tensors only and 2 for the gradients, which are float32: it has passed most of those by `allclose` before. They
    are as noisy as what they are computed from, and get 3 here.
    """
    tol = _tol(cell)
    return Tolerance(tol, 3.0 if cell.dtype != "float32" or tol >= 2e-2 else 2.0)


def _tol(cell: Cell) -> float:
    named = (cell.model, cell.phase)
    if cell.suite == "huggingface":
        on_a_cpu = _HUGGINGFACE_CPU if cell.device == "cpu" else {}
        return on_a_cpu.get(named, _HUGGINGFACE_MODELS.get(named, _HUGGINGFACE[cell.phase]))
    if cell.suite == "timm":
        of_the_model = _TIMM_TRAINING if cell.phase is Phase.TRAINING else _TIMM_FROZEN if _is_frozen(cell) else {}
        return of_the_model.get(cell.model, _TIMM[cell.phase])
    if cell.suite in ("torchbench", "torchvision", "torchbenchmark"):
        return _torchbench(cell)
    return _DEFAULT


def _torchbench(cell: Cell) -> float:
    if cell.dtype in ("float16", "amp", "amp_bfloat16"):
        frozen = _TORCHBENCH_FROZEN if _is_frozen(cell) else {}
        return (frozen | _TORCHBENCH_HIGHER_FLOAT16 | _TORCHBENCH_EVEN_HIGHER).get(
            cell.model, _TORCHBENCH_FLOAT16_OR_AMP
        )
    if cell.dtype == "bfloat16" and cell.model in _TORCHBENCH_HIGHER_BFLOAT16:
        return _TORCHBENCH_HIGHER_BFLOAT16[cell.model]
    if cell.phase is Phase.TRAINING and cell.device != "cpu":
        return _TORCHBENCH_EVEN_HIGHER.get(cell.model, _TORCHBENCH_GPU_TRAINING)
    return _TORCHBENCH


def _is_frozen(cell: Cell) -> bool:
    asked = cell.config.overrides.get("freezing", cell.config.freezing)
    return bool(cell.config.template == "freezing" if asked is None else asked)
