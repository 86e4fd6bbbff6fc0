"""What PyTorch's own accuracy check says of the same outputs: `torch._dynamo.utils.same`, called as its runner calls it.

Source: `check_accuracy` in benchmarks/dynamo/common.py, with `equal_nan`, `get_tolerance_and_cosine_flag` and
`use_larger_multiplier_for_smaller_tensor` of the suites' runners. It compares of inference the outputs, of training what
`torch._dynamo.testing.collect_results` collects: loss, gradients, parameters and buffers, and outputs in torchbench alone.
A failing reference makes it compare by cosine similarity. A comparison that raises fails.

What the runner does besides is not done: a step of the optimizer, its smaller batches, and its lists of models that it skips.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch

from collector.correctness.snapshot import GRADIENT, LOSS, STATE, Opaque, Snapshot
from collector.correctness.tolerances import runner_tol
from collector.failures import classify
from collector.usage_errors import NotCheckedError
from collector.vocabulary import Cell, Phase, Stage, Status

#: Key of a measurement's details: why there is no verdict.
NO_VERDICT = "no_accuracy_pytorch"
#: What the runner says of a model whose two eager runs differ.
EAGER_DIFFERS = "eager_two_runs_differ"

#: Bytes of an element while a tensor is compared: the reference, a difference and its square in float64, and `allclose`.
_BYTES = 32
#: Bytes that a comparison takes without asking for them.
SMALL_BYTES = 1 << 29
#: Characters of a difference.
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
    """Return the bytes that the comparison of the largest output takes, since `same` compares a tensor as a whole."""
    return _BYTES * max((value.numel() for value in eager.values() if isinstance(value, torch.Tensor)), default=0)


def pytorch_verdict(
    cell: Cell, eager: Snapshot, made: Snapshot, reference: Snapshot | None, own_tol: float | None = None
) -> str:
    """Return `pass`, or `fail_accuracy` with what differs first.

    `reference` has what the model computes in a higher precision; without one the runner compares by cosine similarity. `own_tol`
    is the tolerance that a user gives their own model. Raises `NotCheckedError` for outputs that were not kept, and where
    memory runs out.
    """
    for path in _compared(cell, eager, made):
        if isinstance(eager.get(path), Opaque):
            raise NotCheckedError(f"{path}: no tensors are found in it")
        if path not in eager or path not in made:
            return f"{Status.FAIL_ACCURACY}: {path}: on one side only"
        if problem := _differs(cell, eager[path], made[path], reference, path, own_tol):
            return f"{Status.FAIL_ACCURACY}: {path}: {problem}"[:_LONGEST]
    return Status.PASS.value


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
    """Return what is different of one output, or None."""
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
            # One at a time: a reference that was made on the host has no room on the device as a whole.
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
            raise NotCheckedError(f"{type(error).__name__}: {str(error)[:_LONGEST]}") from error
        return f"{type(error).__name__}: {str(error).strip()}"
    return None if agrees else " ".join(told) or "cosine similarity below 0.99"


def _folds_convolutions(cell: Cell) -> bool:
    """Return whether freezing has folded operators into bfloat16 weights, for which the runner takes its largest multiplier."""
    from torch._dynamo.utils import counters

    return cell.dtype == "bfloat16" and counters["inductor"]["binary_folding_conv"] > 0
