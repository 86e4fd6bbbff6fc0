"""Norms of tensors of any size and dtype, in float64 over the finite elements, a chunk at a time."""

from __future__ import annotations

import math
from typing import TypeGuard

import torch

from collector.correctness.snapshot import widened

#: Elements compared at a time: bounds the float64 copies to 128 MiB each.
_CHUNK = 1 << 24


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a leaf is a floating tensor with an element at least."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def chunks(*tensors: torch.Tensor) -> zip[tuple[torch.Tensor, ...]]:
    """Splits tensors of one shape into flat chunks, in step."""
    return zip(*(tensor.reshape(-1).split(_CHUNK) for tensor in tensors), strict=True)


def finite(chunk: torch.Tensor) -> torch.Tensor:
    """Copies a chunk in float64, with zeros in place of NaN and infinities."""
    return torch.nan_to_num(widened(chunk).double(), nan=0.0, posinf=0.0, neginf=0.0)


def rms_of(value: object) -> float:
    """Compute the root mean square over the finite elements; 0 for what is no tensor."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return 0.0
    total = sum(finite(chunk).square().sum() for (chunk,) in chunks(value))
    return math.sqrt(float(total) / value.numel())


def rmse(value: object, exact: object) -> float:
    """Compute the root mean square error, `sqrt(mean((value - exact)^2))`; infinite for what is no tensor of one shape.

    `exact` may be on another device.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(exact, torch.Tensor) or value.shape != exact.shape:
        return math.inf
    total = sum((finite(a) - finite(b.to(a.device))).square().sum() for a, b in chunks(value, exact))
    return math.sqrt(float(total) / value.numel())


def cosine_of(one: torch.Tensor, two: torch.Tensor) -> float:
    """Compute the cosine of the angle between two flattened tensors; 1 for two zero tensors, 0 if only one is zero."""
    sums = []
    for a, b in chunks(one, two):
        x, y = finite(a), finite(b)
        sums.append(torch.stack([x @ y, x @ x, y @ y]))
    dot, a_norm, b_norm = numbers(torch.stack(sums).sum(0)) if sums else (0.0, 0.0, 0.0)
    if a_norm == 0.0 or b_norm == 0.0:
        return 1.0 if a_norm == b_norm else 0.0
    return max(-1.0, min(1.0, dot / math.sqrt(a_norm * b_norm)))


def numbers(*values: torch.Tensor) -> list[float]:
    """Read tensors of one number or row each from their device at once: beside others that use a GPU each wait takes long."""
    device = next((value.device for value in values if value.device.type != "cpu"), torch.device("cpu"))
    rows = [value.detach().reshape(-1).double().to(device) for value in values]
    return [float(number) for number in torch.cat(rows).tolist()]
