"""How far a compiled result may be from eager: one table, with the source of each figure.

The figures are those of PyTorch's benchmarks/dynamo (huggingface.py, timm_models.py, torchbench.py and
torch._dynamo.utils.same). A model listed by name has the tolerance PyTorch gives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from collector.vocabulary import Cell, Phase

#: Base tolerance by suite and phase on a GPU.
_SUITES = {
    ("huggingface", Phase.INFERENCE): 1e-3,
    ("huggingface", Phase.TRAINING): 1e-2,
    ("timm", Phase.INFERENCE): 1e-3,
    ("timm", Phase.TRAINING): 1e-2,
    ("torchvision", Phase.INFERENCE): 1e-3,
    ("torchvision", Phase.TRAINING): 1e-3,
    ("torchbench", Phase.INFERENCE): 1e-3,
    ("torchbench", Phase.TRAINING): 1e-3,
}

#: Models to which PyTorch gives a wider one.
_MODELS = {
    ("GPT2ForSequenceClassification", Phase.INFERENCE): 4e-3,
    ("MT5ForConditionalGeneration", Phase.TRAINING): 2e-2,
    ("inception_v3", Phase.TRAINING): 4e-2,
    ("mobilenetv3_large_100", Phase.TRAINING): 4e-2,
    ("deit_base_distilled_patch16_224", Phase.TRAINING): 8e-2,
    ("vit_base_patch16_siglip_256", Phase.TRAINING): 8e-2,
    ("beit_base_patch16_224", Phase.TRAINING): 16e-2,
    ("yolov3", Phase.INFERENCE): 8e-2,
    ("yolov3", Phase.TRAINING): 8e-2,
    ("squeezenet1_1", Phase.INFERENCE): 8e-2,
    ("squeezenet1_1", Phase.TRAINING): 8e-2,
    ("shufflenet_v2_x1_0", Phase.INFERENCE): 8e-2,
    ("shufflenet_v2_x1_0", Phase.TRAINING): 8e-2,
}

#: torchbench and torchvision run in reduced precision: PyTorch's `higher_bf16` row for all of them.
_REDUCED_TORCHBENCH = 1e-2


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`tol` is absolute and relative, against tensors of magnitude one; `multiplier` bounds the ratio of RMSEs."""

    tol: float
    multiplier: float

    def multiplier_for(self, numel: int) -> float:
        """Few elements give a noisy RMSE: PyTorch's larger multipliers for tensors up to 10 and up to 500 elements."""
        if numel <= 10:
            return max(10.0, self.multiplier)
        return max(8.0, self.multiplier) if numel <= 500 else self.multiplier


def tolerance_for(cell: Cell) -> Tolerance:
    """The tolerance of a cell: by model if PyTorch names it, else by suite; a CPU inference has at least 5e-3."""
    reduced = cell.dtype != "float32"
    tol = _MODELS.get((cell.model, cell.phase), _SUITES.get((cell.suite, cell.phase), 1e-3))
    if reduced and cell.suite in ("torchbench", "torchvision"):
        tol = max(tol, _REDUCED_TORCHBENCH)
    if cell.device == "cpu" and cell.phase is Phase.INFERENCE:
        tol = max(tol, 5e-3)
    return Tolerance(tol, 3.0 if reduced or tol >= 2e-2 else 2.0)
