"""The rows of outputs, and the distance of each row from the reference's.

A row of an output is a vector along the last dimension, such as a token's. A row of a gradient has all elements of one index of
the first dimension, such as an output channel's: along its last dimension a convolution's gradient would have millions of rows of
one to seven elements. A row of integers is one element.

Rows in which eager itself is far off would allow an error of that size in every other row. Such a row jumps: it hangs on a near
tie that eager decided otherwise than the reference did. If the compiled program agrees row by row there, and by the usual rules
everywhere else, no error hides behind the jump. Else eager has to be run with other weights (`collector.correctness.ties`), up to
24 times, which is four fifths of the time of a training step's check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from collector.correctness.comparing import group_of
from collector.correctness.norms import is_float, on_host
from collector.correctness.snapshot import GRADIENT, Snapshot, widened

#: A row jumps if its error is above this multiple of the usual one: in rows of many elements, and of few.
JUMP, JUMP_OF_FEW = 3.0, 10.0
#: Elements that are compared at a time.
CHUNK = 1 << 22
#: The fewest elements of a row whose error is steady: all of eager's errors are within a factor of 2 then.
_MANY = 16
#: The error of a row whose infinities are in other places; finite, so that quantiles can be computed.
ELSEWHERE = 1e100
#: In a row that jumps the compiled program's error may be `_AS_EAGER` times eager's: PyTorch's multiplier in reduced precision.
#: If many rows jump some are further off by chance: `_ROWS` rows, or a share `_SHARE`, may be, up to `_AS_EAGER` times eager's
#: largest jump.
_AS_EAGER, _ROWS, _SHARE = 3.0, 2, 0.01


@dataclass(slots=True)
class Rows:
    """The rows of one output of eager: the tensor `base` that they are compared with, and their errors."""

    base: torch.Tensor
    #: The number of elements of a row.
    width: int
    wide: bool
    #: The size of each row over that of the median row, at least 1: errors grow with it.
    scale: torch.Tensor
    #: Whether there is no reference, so that eager stands in for it.
    is_eager: bool = False
    #: The root mean squares of the rows of a floating output.
    sizes: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    errors: list[torch.Tensor] = field(default_factory=list)
    other_shape: bool = False

    def errors_of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the errors of a tensor's rows, on its device."""
        rows, others = widened(value).reshape(-1, self.width), widened(self.base).reshape(-1, self.width)
        step = max(1, CHUNK // self.width)
        return torch.cat([row_errors(*pair) for pair in zip(rows.split(step), others.split(step), strict=True)])

    def select(self, value: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Return the rows of a tensor with the numbers in `chosen`, as `[rows, width]`."""
        return widened(value).reshape(-1, self.width).index_select(0, chosen.to(value.device)).to(value.dtype)


R = TypeVar("R", bound=Rows)


def rows_of(eager: Snapshot, reference: Snapshot | None, kind: type[R]) -> dict[str, R]:
    """Return the rows of each output that is a tensor with elements, by path."""
    tensors = {path: value for path, value in eager.items() if isinstance(value, torch.Tensor) and value.numel()}
    found = {path: _rows(path, value, (reference or {}).get(path), kind) for path, value in tensors.items()}
    floats = [rows for rows in found.values() if is_float(rows.base)]
    for rows, sizes in zip(floats, on_host([_row_sizes(rows) for rows in floats]), strict=True):
        filled = sizes[sizes > 0]
        rows.sizes = sizes
        rows.scale = (sizes / filled.median()).clamp(min=1.0) if len(filled) else torch.ones_like(sizes)
    return found


def _rows(path: str, value: torch.Tensor, exact: object, kind: type[R]) -> R:
    """Return the rows of an output with scale 1; `rows_of` sets the scale of floating ones."""
    is_other = isinstance(exact, torch.Tensor) and exact.shape != value.shape
    base = exact if is_float(value) and isinstance(exact, torch.Tensor) and not is_other else value
    width = 1
    if is_float(value) and value.dim() > 1:
        width = value[0].numel() if group_of(path) == GRADIENT else value.shape[-1]
    ones = torch.ones(value.numel() // width, dtype=torch.float64)
    rows = kind(base, width, width >= _MANY, ones, is_eager=base is value, other_shape=is_other)
    if not is_float(value) and isinstance(exact, torch.Tensor) and not is_other:
        rows.errors.append(rows.errors_of(exact).cpu())
    return rows


def _row_sizes(rows: Rows) -> torch.Tensor:
    finite = torch.nan_to_num(widened(rows.base), nan=0.0, posinf=0.0, neginf=0.0).reshape(-1, rows.width)
    step = max(1, CHUNK // rows.width)
    return torch.cat([chunk.double().square().mean(-1).sqrt() for chunk in finite.split(step)])


def without_infinities(rows: torch.Tensor) -> torch.Tensor:
    """Copy a tensor in float64, with zeros in place of NaN and infinities."""
    return torch.nan_to_num(rows.double(), nan=0.0, posinf=0.0, neginf=0.0)


def row_errors(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Compute the root mean square difference of each row.

    The difference is `ELSEWHERE` if other elements are finite or infinities have another sign, and 1 for rows of integers that
    differ. `rows` of `[rows, elements]` are compared with `others` of that shape, or of `[runs, rows, elements]`.
    """
    others = others.to(rows.device)
    if not rows.is_floating_point():
        return (rows != others).any(-1).double()
    error = (without_infinities(rows) - without_infinities(others)).square().mean(-1).sqrt()
    elsewhere = (rows.isfinite() != others.isfinite()) | (rows.isinf() & (rows.double() != others.double()))
    return error.masked_fill(elsewhere.any(-1), ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Parted:
    """Snapshots without the rows in which eager jumps."""

    eager: Snapshot
    compiled: Snapshot
    reference: Snapshot


def jumping(eager: Snapshot, reference: Snapshot | None) -> dict[str, Rows]:
    """Return the outputs in which eager is far off the reference in some rows and near in most, or has other integers.

    The rows of a floating output have one tensor of `errors`, eager's.
    """
    known = rows_of({path: eager.get(path) for path in reference or {}}, reference, Rows)
    floats = {path: rows for path, rows in known.items() if rows.wide and not rows.other_shape and is_float(rows.base)}
    errors = on_host([rows.errors_of(_tensor(eager[path])) for path, rows in floats.items()])
    for rows, own in zip(floats.values(), errors, strict=True):
        rows.errors.append(own)
    return {path: rows for path, rows in known.items() if _jumps(rows)}


def _jumps(rows: Rows) -> bool:
    if rows.other_shape or not is_float(rows.base):
        return rows.other_shape or any(bool(errors.any()) for errors in rows.errors)
    if not rows.errors:
        return False
    errors = rows.errors[0] / rows.scale
    live = errors[errors > 0]
    return len(live) > 1 and float(live.max()) > 2 * JUMP * float(live.median())


def _tensor(value: object) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.empty(0)


def part_jumps(eager: Snapshot, compiled: Snapshot, reference: Snapshot, found: Mapping[str, Rows]) -> Parted | None:
    """Set aside the rows in which eager jumps if the compiled program is about as near to the reference as eager in these rows.

    `found` are the outputs that `jumping` returned. Return None if one of them cannot be compared row by row, or is further off.
    """
    if not all(_has_rows(rows, compiled.get(path)) for path, rows in found.items()):
        return None
    parted = Parted(dict(eager), dict(compiled), dict(reference))
    errors = on_host([rows.errors_of(_tensor(compiled[path])) for path, rows in found.items()])
    for (path, rows), made in zip(found.items(), errors, strict=True):
        (own,) = rows.errors
        if own.max() >= ELSEWHERE:
            return None  # a limit of that size would allow anything
        scaled = own / rows.scale
        jumps = scaled > JUMP * scaled[scaled > 0].median()
        is_further = made[jumps] > _AS_EAGER * own[jumps]
        if int(is_further.sum()) > max(_ROWS, _SHARE * len(is_further)) or made[jumps].max() > _AS_EAGER * own.max():
            return None
        firm = (~jumps).nonzero().flatten()  # on the host: selecting by a mask on the device would wait for it
        for snapshot in (parted.eager, parted.compiled, parted.reference):
            snapshot[path] = rows.select(_tensor(snapshot[path]), firm)
    return parted


def _has_rows(rows: Rows, made: object) -> bool:
    return (
        is_float(rows.base)
        and not rows.other_shape
        and isinstance(made, torch.Tensor)
        and made.is_floating_point()
        and made.shape == rows.base.shape
    )
