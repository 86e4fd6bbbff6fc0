"""A run's measurements of one model in a row, and its sums in one or two: what histories and comparisons read.

They repeat what `measurements` and `summaries` hold and are written in the same transaction (`db.summaries.refresh`). The
bytes: the number of the format, then records of one length, little-endian, without gaps; NaN where nothing was measured,
which no stored number is. All values come back bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, delete, insert, select

from db.columns import Rows, fetched, floats
from db.errors import DamagedError
from db.schema import HISTORY_METRICS, CellRow, PackedCells, PackedSums, measurements

#: What of a measurement is packed, in the words of its table.
PACKED = ("cell", "run", "replicate", "status", "program", *HISTORY_METRICS)
#: A packed status is a place in here. Part of the format: new ones go to the end, none ever moves.
STATUSES = (
    *("pass", "fail_accuracy", "nondeterministic", "fail_to_compile", "fail_to_run", "eager_fail", "oom", "timeout"),
    *("crashed", "config_error", "unavailable", "model_fail_to_load", "skipped"),
)
_PLACES = {name: place for place, name in enumerate(STATUSES)}

_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")
_SUMS = ("ln_speedup", "ln_device_speedup", "ln_compiled_ms", "ln_compiled_kernel_ms", "ln_compression")
#: The numbers of a summary row, as they are packed.
SUMMED = (*_COUNTS, *(f"n_{name[3:]}" for name in _SUMS), "n_compile_cold_s", *_SUMS, "sum_compile_cold_s")

_METRICS = [(name, "<f8") for name in HISTORY_METRICS]
#: 40 bytes a measurement, and 45 where a number does not fit into them. `program` is 0 where there is none.
_NARROW = np.dtype([("cell", "<u4"), ("program", "<u2"), ("replicate", "u1"), ("status", "u1"), *_METRICS])
_WIDE = np.dtype([("cell", "<u4"), ("program", "<u4"), ("replicate", "<u4"), ("status", "u1"), *_METRICS])
#: `cell` is the lowest number of the group that was summed: its names are the group's.
_GROUP = np.dtype([("cell", "<u4"), *((name, "<f8" if name[:2] in ("ln", "su") else "<u4") for name in SUMMED)])
_CELL_FORMATS = {1: _NARROW, 2: _WIDE}
_SUM_FORMATS = {1: _GROUP}
#: Records in a row: as many as SQLite keeps in a clustered table without pages of their own (1,002 bytes), and as
#: PostgreSQL keeps without compressing them (2 kB).
_CELLS, _GROUPS = 24, 20

# Made once: a question that is put together anew takes as long as its answer.
_DATA = select(PackedCells.run, PackedCells.data)
_OF_MODELS = _DATA.where(PackedCells.model.in_(bindparam("models", expanding=True)))
_OF_RUNS = _DATA.where(PackedCells.run.in_(bindparam("runs", expanding=True)))
_SUMS_OF_RUNS = select(PackedSums.run, PackedSums.data)

Records = dict[str, NDArray[Any]]


def write_cells(conn: Connection, run: int) -> None:
    """Packs the measurements of a run anew."""
    rows = packed_cells(conn, run)
    conn.execute(delete(PackedCells).where(PackedCells.run == run))
    if rows:
        conn.execute(insert(PackedCells), rows)


def write_sums(conn: Connection, run: int, rows: list[dict[str, Any]]) -> None:
    """Packs the sums of a run anew; `rows` are those of `packed_sums`."""
    conn.execute(delete(PackedSums).where(PackedSums.run == run))
    if rows:
        conn.execute(insert(PackedSums), rows)


def packed_cells(conn: Connection, run: int) -> list[dict[str, Any]]:
    """The rows of `packed_cells` that a run's measurements make."""
    columns = [measurements.c[name] for name in PACKED]
    query = select(CellRow.model, *columns).join(CellRow, CellRow.id == measurements.c.cell)
    rows = fetched(conn, query.where(measurements.c.run == run))
    rows.sort(key=lambda row: (row[0], row[1], row[3]))
    return [
        {"model": model, "run": run, "part": part, "data": _pack(own[start : start + _CELLS])}
        for model, found in groupby(rows, key=lambda row: row[0])
        for own in [list(found)]
        for part, start in enumerate(range(0, len(own), _CELLS))
    ]


def _pack(rows: Rows) -> bytes:
    _, cell, _, replicate, status, program, *metrics = (list(column) for column in zip(*rows, strict=True))
    programs = [key or 0 for key in program]
    number = 1 if max(programs) < 2**16 and max(replicate) < 2**8 else 2
    found = np.zeros(len(rows), dtype=_CELL_FORMATS[number])
    found["cell"], found["program"], found["replicate"] = cell, programs, replicate
    found["status"] = [_PLACES[name] for name in status]
    for name, values in zip(HISTORY_METRICS, metrics, strict=True):
        found[name] = floats(values)
    return bytes([number]) + found.tobytes()


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


def stored_rows(conn: Connection, run: int) -> tuple[dict[tuple[int, int], bytes], dict[int, bytes]]:
    """What is packed of a run as it lies: of its measurements by model and part, of its sums by part."""
    cells = fetched(conn, select(PackedCells.model, PackedCells.part, PackedCells.data).where(PackedCells.run == run))
    sums = fetched(conn, select(PackedSums.part, PackedSums.data).where(PackedSums.run == run))
    return {(model, part): data for model, part, data in cells}, dict(sums)


def cells_of_models(conn: Connection, models: Sequence[int]) -> Records:
    """`PACKED` of all measurements of these models, in any order: status as a place in `STATUSES`, 0 for no program.

    Raises:
        DamagedError: bytes that are of no format.
    """
    return _cells(fetched(conn, _OF_MODELS, {"models": models}))


def cells_of_runs(conn: Connection, runs: Sequence[int]) -> Records:
    """As `cells_of_models`, of all measurements of these runs."""
    return _cells(fetched(conn, _OF_RUNS, {"runs": runs}))


def sums_of_runs(conn: Connection, names: Sequence[str]) -> Records:
    """The sums of all runs, by columns: `run`, `cell` and of `SUMMED` those that are named, an entry a group.

    Raises:
        DamagedError: bytes that are of no format.
    """
    return _unpacked(fetched(conn, _SUMS_OF_RUNS), _SUM_FORMATS, ("cell", *names))


def _cells(rows: Rows) -> Records:
    found = _unpacked(rows, _CELL_FORMATS, _NARROW.names or ())
    if found["status"].max(initial=0) >= len(STATUSES):
        raise _damaged()
    return found


def _unpacked(rows: Rows, formats: Mapping[int, np.dtype[Any]], names: Sequence[str]) -> Records:
    """Pairs of a run and what was packed of it, by columns."""
    numbers = {data[0] if data else 0 for _, data in rows}
    if not numbers <= formats.keys():
        raise _damaged()
    used = sorted(numbers) or [1]
    parts = [
        _of_one_format([row for row in rows if row[1][0] == number] if len(used) > 1 else rows, formats[number], names)
        for number in used
    ]
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _of_one_format(rows: Rows, records: np.dtype[Any], names: Sequence[str]) -> Records:
    sizes = np.array([len(data) - 1 for _, data in rows], dtype=np.int64)
    if (sizes % records.itemsize).any():
        raise _damaged()
    found = np.frombuffer(b"".join([data[1:] for _, data in rows]), dtype=records)
    runs = np.repeat(np.array([run for run, _ in rows], dtype=np.int64), sizes // records.itemsize)
    return {"run": runs, **{name: _native(found[name]) for name in names}}


def _native(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _damaged() -> DamagedError:
    return DamagedError(
        "what is packed of a run cannot be read: the database is damaged; say `inductor-watch db rebuild NEW_DB BUNDLES...`,"
        " the bundles hold everything"
    )
