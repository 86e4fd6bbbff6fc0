"""Whether compiled outputs are right: as close to a float64 reference as eager's own, up to a stated factor.

The rule follows `torch._dynamo.utils.same` (RMSE against float64, `rmse(compiled) <= multiplier * rmse(eager) + slack`)
with one difference: the slack and the absolute tolerance scale with the tensor's own magnitude where that is below one.
PyTorch's are absolute, so that a gradient of magnitude 1e-5 passes there whatever it holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from collector.snapshot import Snapshot
from collector.tolerances import Tolerance

#: Elements compared at a time: bounds the float64 copies to 128 MiB each.
_CHUNK = 1 << 24
#: A tensor is not judged below this share of the largest magnitude among its fellows: gradients that are zero in
#: exact arithmetic (a bias before a normalisation) are pure rounding noise in eager and compiled alike.
_FLOOR = 1e-3
_COSINE = 0.99


@dataclass(frozen=True, slots=True)
class Agreement:
    """The outcome of one comparison. `problem` is None if the outputs agree.

    `rmse_ratio` is the worst `rmse(compiled) / rmse(eager)` against float64 (None without a reference, or where eager is
    exact); `cosine` the smallest cosine similarity between a compiled and an eager tensor (None without floating tensors).
    """

    problem: str | None
    rmse_ratio: float | None
    cosine: float | None
    compared: int


def identical(first: Snapshot, second: Snapshot) -> str | None:
    """None if two eager runs agree bit by bit (NaN equal to NaN), else the path of the first difference."""
    if first.keys() != second.keys():
        return "the structure of the outputs"
    for path, one in first.items():
        two = second[path]
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
            same = one.dtype == two.dtype and one.shape == two.shape and _bitwise(one, two)
        else:
            same = type(one) is type(two) and (one == two or (one != one and two != two))
        if not same:
            return path
    return None


def _bitwise(one: torch.Tensor, two: torch.Tensor) -> bool:
    # torch.equal calls NaN unequal to itself, so only tensors that fail it are looked at again.
    return bool(torch.equal(one, two)) or bool(((one == two) | ((one != one) & (two != two))).all())


def compare(eager: Snapshot, compiled: Snapshot, reference: Snapshot | None, tolerance: Tolerance) -> Agreement:
    """Compares compiled outputs with eager's, by the float64 reference where there is one, else by cosine similarity.

    Structure, dtype and shape must be equal; integers and booleans exactly; NaN and infinities in the same places.
    """
    if eager.keys() != compiled.keys():
        odd = sorted(eager.keys() ^ compiled.keys())
        return Agreement(f"outputs differ in structure at {odd[0]}", None, None, 0)
    floor = _FLOOR * max((_rms(value) for value in eager.values() if _is_float(value)), default=0.0)
    ratios: list[float] = []
    cosines: list[float] = []
    problems: list[str] = []
    for path, wanted in eager.items():
        exact = reference.get(path) if reference else None
        problem = _compare_leaf(wanted, compiled[path], exact, tolerance, floor, ratios, cosines)
        if problem:
            problems.append(f"{path}: {problem}")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Agreement(
        problem=problems[0] + more if problems else None,
        rmse_ratio=max(ratios, default=None),
        cosine=min(cosines, default=None),
        compared=len(eager),
    )


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def _compare_leaf(
    eager: object,
    compiled: object,
    exact: object,
    tolerance: Tolerance,
    floor: float,
    ratios: list[float],
    cosines: list[float],
) -> str | None:
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        same = type(eager) is type(compiled) and (eager == compiled or _close_scalars(eager, compiled, tolerance.tol))
        return None if same else f"{compiled!r} instead of {eager!r}"
    if eager.dtype != compiled.dtype:
        return f"dtype {compiled.dtype} instead of {eager.dtype}"
    if eager.shape != compiled.shape:
        return f"shape {tuple(compiled.shape)} instead of {tuple(eager.shape)}"
    if not _is_float(eager):
        return (
            None
            if torch.equal(eager, compiled)
            else f"{int((eager != compiled).sum())} of {eager.numel()} values differ"
        )
    # By kind: an infinity of the other sign or a NaN in the place of one is as wrong as one where eager has a number.
    if any(not torch.equal(kind(eager), kind(compiled)) for kind in (torch.isnan, torch.isposinf, torch.isneginf)):
        counts = int((~compiled.isfinite()).sum()), int((~eager.isfinite()).sum())
        elsewhere = " in other places or of another kind" if counts[0] == counts[1] else ""
        return f"{counts[0]} values are NaN or infinite, eager has {counts[1]}{elsewhere}"
    usable = isinstance(exact, torch.Tensor) and exact.shape == eager.shape and bool(exact.isfinite().all())
    return _compare_floats(eager, compiled, exact if usable else None, tolerance, floor, ratios, cosines)


def _compare_floats(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    exact: torch.Tensor | None,
    tolerance: Tolerance,
    floor: float,
    ratios: list[float],
    cosines: list[float],
) -> str | None:
    scale = min(1.0, max(_rms(eager), floor))
    cosine = _cosine(eager, compiled)
    # Below the floor a tensor's direction is rounding noise: it says nothing, and it must not become the metric.
    if _rms(eager) > floor:
        cosines.append(cosine)
    close = torch.allclose(compiled, eager, rtol=tolerance.tol, atol=tolerance.tol * scale, equal_nan=True)
    if exact is None:
        return None if close or cosine >= _COSINE else f"cosine similarity {cosine:.4f}, below {_COSINE}"
    wrong, own = _rmse(compiled, exact), _rmse(eager, exact)
    if own > 0 and _rms(eager) > floor:
        ratios.append(wrong / own)
    allowed = tolerance.multiplier_for(eager.numel()) * own + tolerance.tol / 10 * scale
    if close or wrong <= allowed:
        return None
    return f"RMSE to float64 {wrong:.3g}, eager's {own:.3g}, allowed {allowed:.3g}"


def _close_scalars(eager: object, compiled: object, tol: float) -> bool:
    if not isinstance(eager, float) or not isinstance(compiled, float):
        return False
    return math.isclose(eager, compiled, rel_tol=tol, abs_tol=tol) or (math.isnan(eager) and math.isnan(compiled))


def _chunks(*tensors: torch.Tensor) -> zip[tuple[torch.Tensor, ...]]:
    return zip(*(tensor.reshape(-1).split(_CHUNK) for tensor in tensors), strict=True)


def _finite(chunk: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(chunk.double(), nan=0.0, posinf=0.0, neginf=0.0)


def _rms(value: object) -> float:
    """Root mean square over the finite elements."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return 0.0
    total = sum(_finite(chunk).square().sum() for (chunk,) in _chunks(value))
    return math.sqrt(float(total) / value.numel())


def _rmse(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Root mean square error, `sqrt(mean((value - exact)^2))`, in float64."""
    total = sum((_finite(a) - _finite(b)).square().sum() for a, b in _chunks(value, exact))
    return math.sqrt(float(total) / value.numel())


def _cosine(one: torch.Tensor, two: torch.Tensor) -> float:
    """Cosine of the angle between two flattened tensors; 1 for two zero tensors, 0 if only one is zero."""
    dot = a_norm = b_norm = 0.0
    for a, b in _chunks(one, two):
        x, y = _finite(a), _finite(b)
        dot, a_norm, b_norm = dot + float(x @ y), a_norm + float(x @ x), b_norm + float(y @ y)
    if a_norm == 0.0 or b_norm == 0.0:
        return 1.0 if a_norm == b_norm else 0.0
    return max(-1.0, min(1.0, dot / math.sqrt(a_norm * b_norm)))
