"""A run's summary rows once more, in one row or two: what the histories of suites read.

They hold what `summaries` holds and are written with it (`db.packing.summaries.refresh`). The bytes are records of one length, as
those of `packed_cells` (`db.packing.packed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select

from db.packing.packed import Records, unpacked
from db.queries.columns import fetched
from db.schema import PackedSums

_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")
_SUMS = ("ln_speedup", "ln_device_speedup", "ln_compiled_ms", "ln_compiled_kernel_ms", "ln_compression")
#: The numbers of a summary row, as they are packed.
SUMMED = (*_COUNTS, *(f"n_{name[3:]}" for name in _SUMS), "n_compile_cold_s", *_SUMS, "sum_compile_cold_s")

#: `cell` is the lowest number of the group that was summed: its names are the group's.
_GROUP = np.dtype([("cell", "<u4"), *((name, "<f8" if name[:2] in ("ln", "su") else "<u4") for name in SUMMED)])
_FORMATS = {1: _GROUP}
#: Records in a row: no more than PostgreSQL keeps without compressing them (2 kB).
_GROUPS = 20

_ALL = select(PackedSums.run, PackedSums.data)


def write_sums(conn: Connection, run: int, rows: list[dict[str, Any]]) -> None:
    """Packs the sums of a run anew; `rows` are those of `packed_sums`."""
    conn.execute(delete(PackedSums).where(PackedSums.run == run))
    if rows:
        conn.execute(insert(PackedSums), rows)


def packed_sums(run: int, rows: Sequence[Mapping[str, Any]], cells: Sequence[int]) -> list[dict[str, Any]]:
    """The rows of `packed_sums` that a run's summary rows make; entry i of `cells` is the first cell of group i."""
    found = np.zeros(len(rows), dtype=_GROUP)
    found["cell"] = cells
    for name in SUMMED:
        found[name] = [row[name] for row in rows]
    found = found[np.argsort(found["cell"])]
    return [
        {"run": run, "part": part, "data": b"\x01" + found[start : start + _GROUPS].tobytes()}
        for part, start in enumerate(range(0, len(found), _GROUPS))
    ]


def stored_sums(conn: Connection, run: int) -> dict[int, bytes]:
    """What is packed of a run's sums as it lies, by part."""
    return dict(fetched(conn, select(PackedSums.part, PackedSums.data).where(PackedSums.run == run)))


def sums_of_runs(conn: Connection, names: Sequence[str]) -> Records:
    """The sums of all runs, by columns: `run`, `cell` and of `SUMMED` those that are named, an entry a group.

    Raises:
        DamagedError: bytes that are of no format.
    """
    return unpacked(fetched(conn, _ALL), _FORMATS, ("cell", *names))
