"""The metrics of measurements: a run's measurements of one model in a row, of which a history or comparison reads few.

`packed_cells` holds what tells the measurements apart and the metrics that histories read, `packed_metrics` all others
(`db.packing.packed_metrics`); a row of the one belongs to the row of the other with the same key. Both are written
in the transaction
of ingest. The bytes of `packed_cells`: the number of the format, then records of one length, little-endian, without gaps; NaN
where nothing was measured, which no stored number is. All values come back bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, delete, insert, select

from collector.metrics import METRICS
from db.connecting import Query
from db.errors import DamagedError
from db.packing.packed_metrics import KERNEL, OTHERS, UnreadableError, pack, unpack
from db.packing.throttling import THROTTLED
from db.queries.columns import Rows, Values, fetched, floats
from db.schema import HISTORY_METRICS, CellRow, PackedCells, PackedMetrics, measurements

#: What of a measurement is in `packed_cells`, in the words of `measurements`.
PACKED = ("cell", "run", "replicate", "status", "program", *HISTORY_METRICS)
#: A packed status is a place in here. Part of the format: new ones go to the end, none ever moves.
STATUSES = (
    *("pass", "fail_accuracy", "nondeterministic", "fail_to_compile", "fail_to_run", "eager_fail", "oom", "timeout"),
    *("crashed", "config_error", "unavailable", "model_fail_to_load", "skipped"),
)
#: What is packed of a measurement beside what tells it apart: the metrics, and why the GPU was held back.
STORED = (*METRICS, THROTTLED)
_PLACES = {name: place for place, name in enumerate(STATUSES)}

_METRICS = [(name, "<f8") for name in HISTORY_METRICS]
#: 40 bytes a measurement, and 45 where a number does not fit into them. `program` is 0 where there is none.
_NARROW = np.dtype([("cell", "<u4"), ("program", "<u2"), ("replicate", "u1"), ("status", "u1"), *_METRICS])
_WIDE = np.dtype([("cell", "<u4"), ("program", "<u4"), ("replicate", "<u4"), ("status", "u1"), *_METRICS])
_FORMATS = {1: _NARROW, 2: _WIDE}
#: Records in a row: as many as SQLite keeps in a clustered table without pages of their own (1,002 bytes), and as
#: PostgreSQL keeps without compressing them (2 kB).
_RECORDS = 24

# Made once: a question that is put together anew takes as long as its answer.
_DATA = select(PackedCells.run, PackedCells.data)
_OF_MODELS = _DATA.where(PackedCells.model.in_(bindparam("models", expanding=True)))
_OF_RUNS = _DATA.where(PackedCells.run.in_(bindparam("runs", expanding=True)))
_KEYED, _KEYED_METRICS = (
    select(table.model, table.run, table.part, table.data) for table in (PackedCells, PackedMetrics)
)

Key = tuple[int, int]
Records = dict[str, NDArray[Any]]
#: Bytes by model and part.
Parts = dict[Key, bytes]


def write_measured(conn: Connection, run: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Packs the measurements of a run anew: all of them, by the words of `measurements`, and their metrics by name."""
    tables: tuple[type[PackedCells | PackedMetrics], ...] = (PackedCells, PackedMetrics)
    for table, parts in zip(tables, packed_rows(conn, run, rows), strict=True):
        conn.execute(delete(table).where(table.run == run))
        if parts:
            found = [{"model": model, "run": run, "part": part, "data": data} for (model, part), data in parts.items()]
            conn.execute(insert(table), found)


def packed_rows(conn: Connection, run: int, rows: Iterable[Mapping[str, Any]]) -> tuple[Parts, Parts]:
    """What `write_measured` writes, of `packed_cells` and of `packed_metrics`."""
    query = select(CellRow.id, CellRow.model).join(measurements, measurements.c.cell == CellRow.id)
    models: dict[int, int] = dict(fetched(conn, query.where(measurements.c.run == run)))
    ordered = sorted(rows, key=lambda row: (models[row["cell"]], row["cell"], row["replicate"]))
    cells: Parts = {}
    metrics: Parts = {}
    for model, found in groupby(ordered, key=lambda row: models[row["cell"]]):
        own = list(found)
        for part, start in enumerate(range(0, len(own), _RECORDS)):
            some = own[start : start + _RECORDS]
            columns = {name: floats([row.get(name) for row in some]) for name in STORED}
            cells[model, part], metrics[model, part] = _pack(some, columns), pack(columns)
    return cells, metrics


def _pack(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Values]) -> bytes:
    programs, replicates = [row["program"] or 0 for row in rows], [row["replicate"] for row in rows]
    number = 1 if max(programs) < 2**16 and max(replicates) < 2**8 else 2
    found = np.zeros(len(rows), dtype=_FORMATS[number])
    found["cell"], found["program"], found["replicate"] = [row["cell"] for row in rows], programs, replicates
    found["status"] = [_PLACES[row["status"]] for row in rows]
    for name in HISTORY_METRICS:
        found[name] = columns[name]
    return bytes([number]) + found.tobytes()


def stored_parts(conn: Connection, run: int) -> tuple[Parts, Parts]:
    """What is packed of a run as it lies, of `packed_cells` and of `packed_metrics`."""
    cells, metrics = (
        {(model, part): data for model, _, part, data in fetched(conn, query.where(table.run == run))}
        for query, table in ((_KEYED, PackedCells), (_KEYED_METRICS, PackedMetrics))
    )
    return cells, metrics


def measured_of_models(conn: Connection, models: Sequence[int], metrics: Sequence[str]) -> Records:
    """All measurements of these models, in any order: `PACKED` and the metrics that are named.

    Status is a place in `STATUSES`, program 0 where there is none, a metric NaN where it was not measured.

    Raises:
        DamagedError: bytes that are of no format.
    """
    if set(metrics) <= set(HISTORY_METRICS):
        return _records(fetched(conn, _OF_MODELS, {"models": models}))
    return _with_others(
        fetched(conn, _KEYED.where(PackedCells.model.in_(models))),
        fetched(conn, _KEYED_METRICS.where(PackedMetrics.model.in_(models))),
        metrics,
    )


def measured_of_runs(
    conn: Connection, runs: Sequence[int], metrics: Sequence[str], models: Sequence[int] | None = None
) -> Records:
    """As `measured_of_models`, of all measurements of these runs; of these models, where any are named."""
    if set(metrics) <= set(HISTORY_METRICS) and models is None:
        return _records(fetched(conn, _OF_RUNS, {"runs": runs}))

    def of_runs(query: Query, table: type[PackedCells | PackedMetrics]) -> Rows:
        chosen = [] if models is None else [table.model.in_(models)]
        return fetched(conn, query.where(table.run.in_(runs), *chosen))

    return _with_others(of_runs(_KEYED, PackedCells), of_runs(_KEYED_METRICS, PackedMetrics), metrics)


def metrics_of_run(
    conn: Connection, run: int, metrics: Sequence[str] = tuple(METRICS), model: int | None = None
) -> dict[Key, dict[str, float | None]]:
    """By cell and replicate the metrics of a run's measurements (of a model), None where one was not measured."""
    found = measured_of_runs(conn, (run,), metrics, None if model is None else (model,))
    keys = zip(found["cell"].tolist(), found["replicate"].tolist(), strict=True)
    columns = [[None if value != value else value for value in found[name].tolist()] for name in metrics]
    return {key: dict(zip(metrics, values, strict=True)) for key, *values in zip(keys, *columns, strict=True)}


def places_in(records: Records, run: NDArray[Any], cell: NDArray[Any], replicate: NDArray[Any]) -> NDArray[np.int64]:
    """Where among the records each of these measurements is; -1 for one that is not there."""
    sides = (("run", run), ("cell", cell), ("replicate", replicate))
    key, asked = np.zeros(len(records["run"]), dtype=np.int64), np.zeros(len(run), dtype=np.int64)
    for name, values in sides:  # ranks in place of numbers, as three of them fit into no 64 bits
        known = np.unique(np.concatenate([records[name], values.astype(np.int64)]))
        key, asked = (
            old * len(known) + np.searchsorted(known, new.astype(np.int64))
            for old, new in ((key, records[name]), (asked, values))
        )
    if not len(key):
        return np.full(len(asked), -1)
    order = np.argsort(key)
    found = order[np.minimum(np.searchsorted(key, asked, sorter=order), len(key) - 1)]
    return np.where(key[found] == asked, found, -1)


def _with_others(cells: Rows, others: Rows, metrics: Sequence[str]) -> Records:
    """Rows of model, run, part and bytes, of `packed_cells` and of `packed_metrics`."""
    of_key = {row[:3]: row[3] for row in others}
    if len(of_key) != len(cells) or any(row[:3] not in of_key for row in cells):
        raise _damaged()
    cells.sort(key=lambda row: row[3][:1])  # as records of several formats come out
    found = _records([(run, data) for _, run, _, data in cells])
    counts = np.array([(len(row[3]) - 1) // _FORMATS[row[3][0]].itemsize for row in cells], dtype=np.int64)
    names = [name for name in metrics if name in OTHERS]
    try:
        return found | unpack([of_key[row[:3]] for row in cells], counts, found[KERNEL], names)
    except UnreadableError as error:
        raise _damaged() from error


def _records(rows: Rows) -> Records:
    """Pairs of a run and what is packed of it, by columns: those of the first format first."""
    found = unpacked(rows, _FORMATS, _NARROW.names or ())
    if found["status"].max(initial=0) >= len(STATUSES):
        raise _damaged()
    return found


def unpacked(rows: Rows, formats: Mapping[int, np.dtype[Any]], names: Sequence[str]) -> Records:
    """Pairs of a run and of bytes, the number of a format before records of it, by columns: `run` and the names.

    Raises:
        DamagedError: bytes that are of no format.
    """
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
        "what is packed of a run cannot be read: the database is damaged; run `inductor-watch db rebuild NEW_DB BUNDLES...`,"
        " the bundles hold everything"
    )
