"""The cells of one side: a row for every cell that its runs planned or measured, the newest measurement where several are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from collector.metrics import METRICS
from db.connecting import Source, connected
from db.packing.packed import PACKED, STATUSES, Records, measured_of_runs, places_in
from db.queries.cell_names import CELL_COLUMNS as CELL_COLUMNS
from db.queries.cell_names import CellNames, Places, cell_names
from db.queries.columns import Column, coded, fetched, floats, moments_of, picked, turned, whole
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.sides import Side
from db.schema import CellRow, ConfigRow, Environment, Model, Planned, Program, Samples, measurements

#: What a measurement adds to a cell's names; all of it is absent (None or NaN) in a row whose cell is missing.
MEASURED_COLUMNS = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id"),
    *("stage", "exception", "message", "hint", "spread", *METRICS),
)

_NUMBERS = frozenset({"wall_s", "spread", *METRICS})
_TEXTS = ("status", "stage", "exception", "message", "hint")
_RECORDS: dict[str, tuple[str, Any]] = {
    "program_id": ("program", Program.program_id),
    "environment_id": ("environment", Environment.environment_id),
}
_KEY = ("run", "cell", "replicate")
#: Always read. Where a cell has several measurements, `_AGES` as well: by these the one is found that counts.
_ALWAYS = ("cell", "run")
_AGES = ("replicate", "started_at")
#: As many cells are asked for by number; of more the whole runs are read.
_FEW = 300
_PLANNED = select(Planned.cell, Planned.run).where(Planned.run.in_(bindparam("runs", expanding=True)))


@dataclass(frozen=True, slots=True)
class SideCells:
    """One side by columns: entry i of each is of the cell at `places[i]` of `names`; the places rise.

    `columns` holds what was asked for of `MEASURED_COLUMNS`. `environments` has the numbers of the environments that
    any measurement of the side had, also one that does not count because a newer one does.
    """

    names: CellNames
    places: Places
    columns: dict[str, Any]
    environments: frozenset[int]


def side_rows(
    source: Source, side: Side, filters: CellFilter = EVERYTHING, *, metrics: Sequence[str] = tuple(METRICS)
) -> pd.DataFrame:
    """A row per expected cell, sorted by suite, model and config: `CELL_COLUMNS`, then `MEASURED_COLUMNS`.

    `status` is None where a cell was planned and never measured. Of several measurements of a cell, by several runs of
    the side or as replicates of one run, the one that started last counts. `spread` is the robust relative spread of
    the `compiled_ms` samples. `started_at` is in UTC, latencies are in ms, peaks in bytes. Of the metrics only those
    that `metrics` names are read.

    Raises:
        KeyError: a metric that does not exist.
    """
    unwanted = METRICS.keys() - {METRICS[name].name for name in metrics}
    with connected(source) as conn:
        found = side_cells(conn, side, filters, [name for name in MEASURED_COLUMNS if name not in unwanted])
    return frame_of(found)


def frame_of(cells: SideCells) -> pd.DataFrame:
    """A side's columns as a data frame, the cells' names first."""
    return pd.DataFrame({**cells.names.of(cells.places), **cells.columns})


def names_of(cells: SideCells) -> pd.DataFrame:
    """The names of a side's cells alone."""
    return pd.DataFrame(cells.names.of(cells.places))


def side_environments(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> dict[str, dict[str, Any]]:
    """The fingerprints under which a side's cells were measured, by `environment_id`; lost records are left out."""
    used = select(measurements.c.environment).join(CellRow, CellRow.id == measurements.c.cell)
    used = used.join(Model, Model.id == CellRow.model).join(ConfigRow, ConfigRow.id == CellRow.config)
    used = used.where(measurements.c.run.in_(side.keys), *filters.conditions())
    with connected(source) as conn:
        return environments_of(conn, set(conn.execute(used.distinct()).scalars()))


def environments_of(conn: Connection, keys: Collection[int | None]) -> dict[str, dict[str, Any]]:
    """The fingerprints of these numbers by `environment_id`; lost records are left out."""
    query = select(Environment.environment_id, Environment.data).where(
        Environment.data.is_not(None), Environment.id.in_({key for key in keys if key is not None})
    )
    return {row.environment_id: row.data for row in conn.execute(query)}


def side_cells(
    conn: Connection, side: Side, filters: CellFilter = EVERYTHING, columns: Sequence[str] = MEASURED_COLUMNS
) -> SideCells:
    """A side by columns, of `MEASURED_COLUMNS` those that are asked for, in their order."""
    (found,) = cells_of_sides(conn, (side,), filters, columns)
    return found


def cells_of_sides(
    conn: Connection, sides: Sequence[Side], filters: CellFilter = EVERYTHING, columns: Sequence[str] = MEASURED_COLUMNS
) -> list[SideCells]:
    """`side_cells` of several sides, whose rows are read by one query."""
    names = cell_names(conn)
    few = None if filters == EVERYTHING else _few(names, filters)
    keys = sorted({key for side in sides for key in side.keys})
    found = _measured(conn, keys, (*columns, *_AGES) if "spread" in columns else columns, few)
    planned = _planned(conn, keys)
    rows = [_of_side(side, found) for side in sides]
    if any(_has_several(of_side) for of_side in rows):
        found = _measured(conn, keys, (*columns, *_AGES), few)
        rows = [_of_side(side, found) for side in sides]
    if not names.has(max(found["cell"].max(initial=0), planned["cell"].max(initial=0))):
        names = cell_names(conn)  # stored since: a writer's connection sees what others commit
    return [
        _side_cells(conn, side, _Rows(names, of_side, _of_side(side, planned)["cell"]), filters, columns)
        for side, of_side in zip(sides, rows, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Few:
    """Cells by number, and the models that they are of."""

    cells: list[int]
    models: list[int]


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was read of one side: the names, its rows by column, and the cells that it planned and did not measure."""

    names: CellNames
    found: dict[str, Any]
    planned: Column


def _side_cells(conn: Connection, side: Side, rows: _Rows, filters: CellFilter, columns: Sequence[str]) -> SideCells:
    names, found = rows.names, rows.found
    of_row = names.at(found["cell"])
    is_measured = np.zeros(len(names.keys), dtype=bool)
    is_measured[of_row] = True
    missing = np.unique(names.at(rows.planned))
    missing = missing[~is_measured[missing]]
    counts, environments = _which_count(side, found, of_row), found.get("environment", np.empty(0, dtype=object))
    if filters != EVERYTHING:
        chosen = names.chosen(filters)
        counts, missing = counts[chosen[of_row[counts]]], missing[chosen[missing]]
        environments = environments[chosen[of_row]] if len(environments) else environments
    places = np.concatenate([of_row[counts], missing])
    order = np.argsort(places)
    shown = np.concatenate([counts, np.full(len(missing), -1)])[order]
    if "spread" in columns:
        found["spread"] = _spreads(conn, side, found)
    values = {name: _column(conn, side, name, found, shown) for name in columns}
    return SideCells(names, places[order], values, frozenset(set(environments.tolist()) - {None}))


def _of_side(side: Side, found: dict[str, Any]) -> dict[str, Any]:
    """The rows of this side's runs, in a table of its own."""
    runs = whole(found["run"])
    is_own = runs == side.keys[0] if len(side.keys) == 1 else np.isin(runs, side.keys)
    return dict(found) if is_own.all() else {name: values[is_own] for name, values in found.items()}


def _has_several(found: dict[str, Any]) -> bool:
    return len(np.unique(whole(found["cell"]))) < len(found["cell"])


def _few(names: CellNames, filters: CellFilter) -> _Few | None:
    """What a filter lets through, if it is few."""
    places = np.flatnonzero(names.chosen(filters))
    if len(places) > _FEW:
        return None
    return _Few(names.keys[places].tolist(), np.unique(names.models[places]).tolist())


def _measured(conn: Connection, runs: Sequence[int], columns: Sequence[str], few: _Few | None) -> dict[str, Any]:
    """The columns of `measurements` and the metrics that it takes; of few cells, where only those are asked for.

    As they are in the database; what is packed is unpacked, and its statuses are places in `STATUSES`.
    """
    wanted = [_RECORDS[name][0] if name in _RECORDS else name for name in columns]
    metrics = [name for name in wanted if name in METRICS]
    asked = list(dict.fromkeys([*_ALWAYS, *(name for name in wanted if name in measurements.c)]))
    if set(asked) <= set(PACKED):
        return _unpacked(measured_of_runs(conn, runs, metrics), [*asked, *metrics])
    asked = list(dict.fromkeys([*asked, *_KEY]))
    query = select(*(measurements.c[name] for name in asked)).where(measurements.c.run.in_(runs))
    if few is not None:
        query = query.where(measurements.c.cell.in_(few.cells))
    found: dict[str, Any] = dict(zip(asked, turned(fetched(conn, query), len(asked)), strict=True))
    if metrics:
        records = measured_of_runs(conn, runs, metrics, None if few is None else few.models)
        places = places_in(records, *(found[name] for name in _KEY))
        found |= {name: _filled(records[name], places) for name in metrics}
    return found


def _unpacked(records: Records, columns: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {name: records[name] for name in columns}
    if "program" in found:
        found["program"] = np.where(found["program"] > 0, found["program"], None)
    return found


def _which_count(side: Side, found: dict[str, Any], of_row: Places) -> NDArray[np.int64]:
    """Of every cell the row that counts: the one that started last, then of the run that did, then by name."""
    if not set(_AGES) <= found.keys() or len(np.unique(of_row)) == len(of_row):
        return np.arange(len(of_row))
    by_age = sorted(side.runs, key=lambda run: (run.started_at, run.run_id))
    age = {run.key: place for place, run in enumerate(by_age)}
    ages = np.array([age[key] for key in found["run"]])
    order = np.lexsort((whole(found["replicate"]), ages, floats(found["started_at"]), of_row))
    is_last: NDArray[np.bool_] = np.append(np.diff(of_row[order]) != 0, True)
    kept: NDArray[np.int64] = order[is_last]
    return kept


def _planned(conn: Connection, runs: Sequence[int]) -> dict[str, Column]:
    """The cells that these runs planned and did not measure; another run of the side may have."""
    rows = fetched(conn, _PLANNED, {"runs": runs})
    return dict(zip(("cell", "run"), turned(rows, 2), strict=True))


def _spreads(conn: Connection, side: Side, found: dict[str, Any]) -> Column:
    query = select(Samples.run, Samples.cell, Samples.replicate, Samples.spread)
    query = query.where(Samples.run.in_(side.keys), Samples.metric == "compiled_ms")
    spreads = {(run, cell, replicate): spread for run, cell, replicate, spread in fetched(conn, query)}
    keys = zip(*(found[name].tolist() for name in ("run", "cell", "replicate")), strict=True)
    return np.array([spreads.get(key) for key in keys], dtype=object)


def _column(conn: Connection, side: Side, name: str, found: dict[str, Any], rows: NDArray[np.int64]) -> Any:
    """One of `MEASURED_COLUMNS`: of these rows, absent for -1."""
    if name in _NUMBERS:
        return _filled(floats(found[name]), rows)
    if name == "started_at":
        return moments_of(_filled(floats(found[name]), rows))
    if name == "replicate":
        return pd.arrays.IntegerArray(np.append(whole(found[name]), 0)[rows], rows < 0)
    if name in _TEXTS:
        values = found[name]
        if values.dtype != object:
            return picked(STATUSES, np.append(values, -1)[rows])
        return coded(values).take(rows, allow_fill=True)
    of_row = np.array([-1 if key is None else key for key in (*found[_source_of(name)].tolist(), None)])[rows]
    return _named(_names_of(conn, side, name, set(of_row.tolist()) - {-1}), of_row)


def _filled(values: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.append(values, np.nan)[rows]


def _source_of(name: str) -> str:
    return _RECORDS[name][0] if name in _RECORDS else "run"


def _names_of(conn: Connection, side: Side, name: str, keys: set[int]) -> dict[int, str]:
    """What the numbers stand for that a row has for its run, testbed, program or environment."""
    if name == "run_id":
        return {run.key: run.run_id for run in side.runs}
    if name == "testbed_id":
        return {run.key: run.testbed_id for run in side.runs}
    column = _RECORDS[name][1]
    return dict(fetched(conn, select(column.class_.id, column).where(column.class_.id.in_(sorted(keys)))))


def _named(names: dict[int, str], keys: NDArray[np.int64]) -> Any:
    known = np.array(sorted(names), dtype=np.int64)
    places = np.searchsorted(known, keys)
    return picked([names[key] for key in known.tolist()], np.where(keys < 0, -1, places))
