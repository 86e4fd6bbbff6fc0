"""PyTorch's own accuracy check: the tolerances that it gives a cell, and its verdict on our outputs.

The tolerances are those of benchmarks/dynamo: `get_tolerance_and_cosine_flag` in huggingface.py, timm_models.py and
torchbench.py with the lists of the yaml files beside them, and the multipliers of `torch._dynamo.utils.same`. Suites
`torchvision` and `torchbenchmark` have models of torchbench's list. `collector.correctness.comparing` says where our rule is
stricter.

For the verdict `torch._dynamo.utils.same` is called as PyTorch's runner calls it. Source: `check_accuracy` in
benchmarks/dynamo/common.py, with `equal_nan`, `get_tolerance_and_cosine_flag` and `use_larger_multiplier_for_smaller_tensor` of
the suites' runners. For inference it compares the outputs, for training the results of `torch._dynamo.testing.collect_results`:
loss, gradients, parameters and buffers, and outputs in torchbench only. If the reference fails, it compares by cosine
similarity. A comparison that raises fails.

Other parts of the runner are left out: a step of the optimizer, its smaller batches, and its lists of models that it skips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from collector.correctness.norms import on_host
from collector.correctness.snapshot import GRADIENT, LOSS, STATE, Opaque, Snapshot
from collector.device import CPU, is_accelerator
from collector.failures import classify, reason_of
from collector.usage_errors import NotCheckedError
from collector.vocabulary import Cell, Phase, Stage, Status

#: Tensors with fewer elements have a noisy RMSE (`torch._dynamo.utils.same`).
SMALL = 1000

#: The `tol` that allows an error of TensorFloat-32's rounding: any error may be a tenth of `tol` as a share of a tensor's size.
#: 2^-10 is the distance of two neighbouring numbers in TensorFloat-32, with ten bits behind the point (NVIDIA A100 whitepaper).
_TF32 = 10 * 2.0**-10
#: The `tol` of suites that PyTorch does not have.
_DEFAULT = 1e-3

#: The `tol` of huggingface.py, which runs language models as well, and of timm_models.py.
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
    """A tolerance: `tol` is absolute and relative, for tensors of magnitude one; `multiplier` bounds the ratio of RMSEs."""

    tol: float
    multiplier: float

    def multiplier_for(self, shape: Sequence[int]) -> float:
        """Return the multiplier of a tensor of this shape.

        The RMSE of few elements is noisy: the multiplier is at least 10 up to 10 elements and 8 up to 500. PyTorch gives these
        two to models by name, each after it had failed. At least 3 below a thousand elements and for weights of 1x1
        convolutions is PyTorch's rule.
        """
        numel = math.prod(shape)
        if numel <= 10:
            return max(10.0, self.multiplier)
        if numel <= 500:
            return max(8.0, self.multiplier)
        of_a_point = len(shape) == 4 and shape[-1] == shape[-2] == 1
        return max(3.0, self.multiplier) if numel < SMALL or of_a_point else self.multiplier


def tolerance_for(cell: Cell, own: float | None = None, allows_tf32: bool = False) -> Tolerance:
    """Return the tolerance that PyTorch gives the cell, or a tolerance with the `own` tol that a user gives their model.

    If a float32 program may multiply in TensorFloat-32, a library uses it for one shape or memory format and not for another,
    and eager may have computed the same product in float32. Then an error of TensorFloat-32's own rounding is allowed (`_TF32`).

    The multiplier is 3 in reduced precision and from a `tol` of 2e-2, else 2. Under autocast PyTorch takes 2 for the gradients,
    which are float32; it has passed most gradients by `allclose` before. They are as noisy as the values from which they are
    computed, and get 3 here.
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


#: The key of a measurement's details with the reason why there is no verdict.
NO_VERDICT = "no_accuracy_pytorch"
#: The runner's verdict on a model whose two eager runs differ.
EAGER_DIFFERS = "eager_two_runs_differ"

#: Bytes of an element while a tensor is compared: the reference, a difference and its square in float64, and `allclose`.
_BYTES = 32
#: The most bytes that a comparison may take without asking for device memory.
SMALL_BYTES = 1 << 29
#: The most elements of a tensor that is compared on the host. `same` waits for the device up to three times for each tensor, and
#: a training step has hundreds of gradients; on a GPU that others use, too, each wait takes long.
_ON_HOST = 1 << 20
#: The most characters of a verdict.
_LONGEST = 300
#: Suites whose runner compares no outputs of a training step.
_WITHOUT_OUTPUTS = ("huggingface", "llm", "timm")
#: `use_larger_multiplier_for_smaller_tensor` of huggingface.py and timm_models.py, and the list in torchbench.yaml.
_LARGER_MULTIPLIER = frozenset(
    (
        *("GPT2ForSequenceClassification", "BertForMaskedLM", "inception_v3", "mobilenetv3_large_100"),
        *("vit_base_patch14_dinov2.lvd142m", "yolov3"),
    )
)


def bytes_for(eager: Snapshot) -> int:
    """Return the bytes that comparing the largest output takes, since `same` compares a tensor as a whole."""
    return _BYTES * max((value.numel() for value in eager.values() if isinstance(value, torch.Tensor)), default=0)


def pytorch_verdict(
    cell: Cell, eager: Snapshot, made: Snapshot, reference: Snapshot | None, own_tol: float | None = None
) -> str:
    """Return the verdict of PyTorch's check: `pass`, or `fail_accuracy` with the first difference.

    `reference` has the outputs of the model in a higher precision; without one the runner compares by cosine similarity.
    `own_tol` is the tolerance that a user gives their own model. Raises `NotCheckedError` for outputs that were not kept, and
    if memory runs out.
    """
    paths = list(_compared(cell, eager, made))
    eager, made, near = (_small_on_host(side, paths) for side in (eager, made, reference or {}))
    reference = None if reference is None else near
    for path in paths:
        if isinstance(eager.get(path), Opaque):
            raise NotCheckedError(f"{path}: no tensors are found in it")
        if path not in eager or path not in made:
            return f"{Status.FAIL_ACCURACY}: {path}: on one side only"
        if problem := _differs(cell, eager[path], made[path], reference, path, own_tol):
            return f"{Status.FAIL_ACCURACY}: {path}: {problem}"[:_LONGEST]
    return Status.PASS.value


def _small_on_host(snapshot: Snapshot, paths: Iterable[str]) -> Snapshot:
    """Return a snapshot with these paths only and with small tensors on the host, copied there together."""
    found = {path: snapshot[path] for path in paths if path in snapshot}
    groups: dict[object, dict[str, torch.Tensor]] = {}
    for path, value in found.items():
        if isinstance(value, torch.Tensor) and value.device.type != CPU and value.numel() <= _ON_HOST:
            groups.setdefault((value.dtype, value.device), {})[path] = value
    for small in groups.values():
        rows = on_host([value.reshape(-1) for value in small.values()])
        found |= {path: row.view(value.shape) for (path, value), row in zip(small.items(), rows, strict=True)}
    return found


def _compared(cell: Cell, *snapshots: Snapshot) -> Iterator[str]:
    """Yield the paths that the runner compares."""
    has_outputs = cell.phase is Phase.INFERENCE or cell.suite not in _WITHOUT_OUTPUTS
    for path in dict.fromkeys(path for snapshot in snapshots for path in snapshot):
        if path.startswith(STATE):
            if cell.phase is Phase.TRAINING and not path.startswith((f"{STATE}'input ", f'{STATE}"input ')):
                yield path
        elif has_outputs or path.startswith((LOSS, GRADIENT)):
            yield path


def _differs(
    cell: Cell, eager: Any, made: Any, reference: Snapshot | None, path: str, own_tol: float | None
) -> str | None:
    """Return how one output differs, or None if it passes."""
    from torch._dynamo.utils import same  # late: it imports the compiler

    exact, told = (reference or {}).get(path), list[str]()
    larger = {
        "use_larger_multiplier_for_smaller_tensor": cell.model in _LARGER_MULTIPLIER,
        "force_max_multiplier": _folds_convolutions(cell),
    }
    options = {name: True for name, holds in larger.items() if holds}
    if missing := options.keys() - signature(same).parameters:
        raise NotCheckedError(f"the check of this torch has no {', '.join(missing)}")
    try:
        if isinstance(exact, torch.Tensor) and isinstance(eager, torch.Tensor):
            # One at a time: the device may have no room for the whole of a reference that was made on the host.
            exact = exact.to(eager.device, torch.float64 if exact.is_floating_point() else exact.dtype)
        agrees = same(
            eager,
            made,
            exact,
            cos_similarity=reference is None,
            tol=runner_tol(cell) if own_tol is None else own_tol,
            equal_nan=cell.dtype != "float32",
            log_error=lambda text, *values: told.append(text % values),
            **options,
        )
    except Exception as error:
        if classify(error, Stage.CORRECTNESS)[0] is Status.OOM or type(error).__name__ == "AcceleratorError":
            raise NotCheckedError(reason_of(error, _LONGEST)) from error
        return f"{type(error).__name__}: {str(error).strip()}"
    return None if agrees else " ".join(told) or "cosine similarity below 0.99"


def _folds_convolutions(cell: Cell) -> bool:
    """Return whether freezing has folded operators into a bfloat16 convolution: the runner then takes its largest multiplier."""
    from torch._dynamo.utils import counters

    return cell.dtype == "bfloat16" and counters["inductor"]["binary_folding_conv"] > 0
