"""Rows in which eager itself is far off: their error would allow an error of that size in every other row.

Such a row hangs on a near tie that eager decided otherwise than the reference did. Where the compiled program agrees row by row
there, and by the usual rules everywhere else, nothing hides behind the jump. Else eager has to be run under other weights
(`collector.correctness.ties`), up to 24 times: four fifths of the time of a training step's check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from collector.correctness.norms import is_float
from collector.correctness.rows import ELSEWHERE, JUMP, Rows, on_host, rows_of
from collector.correctness.snapshot import Snapshot

#: Times eager's error of a row that jumps that the compiled program's may be: PyTorch's multiplier in reduced precision. Where
#: many rows jump some are further off by chance: so many may be, or such a share, by as much as eager's largest jump.
_AS_EAGER, _ROWS, _SHARE = 3.0, 2, 0.01


@dataclass(frozen=True, slots=True)
class Parted:
    """Snapshots without the rows in which eager jumps."""

    eager: Snapshot
    compiled: Snapshot
    reference: Snapshot


def jumping(eager: Snapshot, reference: Snapshot | None) -> dict[str, Rows]:
    """Return the outputs in which eager is far off in some rows and near in most, or has other integers.

    Those of floating outputs have one tensor of `errors`, eager's.
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
    """Set aside the rows in which eager jumps, where the compiled program is about as near to the reference in each of them.

    `found` are the outputs that `jumping` returned. None where one of them cannot be compared row by row, or is further off.
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
        firm = (~jumps).nonzero().flatten()  # on the host: a mask on the device would be read from it
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
