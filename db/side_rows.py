"""The cells of one side: a row for every cell that its runs planned or measured, the newest measurement where several are."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sqlalchemy import Table, and_, exists, select

from collector.metrics import METRICS
from db.base import Base
from db.connecting import Query, Source, connected, frame, moments
from db.filters import EVERYTHING, CellFilter
from db.schema import (
    CellRow,
    ConfigRow,
    Environment,
    Model,
    Planned,
    Program,
    Run,
    Samples,
    Testbed,
    measurements,
)
from db.sides import Side

#: What names a cell.
CELL_COLUMNS = ("cell_id", "suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")
#: What a measurement adds to it; all of it is absent (None or NaN) in a row whose cell is missing.
MEASURED_COLUMNS = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id"),
    *("stage", "exception", "message", "hint", "spread", *METRICS),
)


def side_rows(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> pd.DataFrame:
    """A row per expected cell, sorted by suite, model and config: `CELL_COLUMNS`, then `MEASURED_COLUMNS`.

    `status` is None where a cell was planned and never measured. Of several measurements of a cell, by several runs of
    the side or as replicates of one run, the one that started last counts. `spread` is the robust relative spread of
    the `compiled_ms` samples. `started_at` is in UTC, latencies are in ms, peaks in bytes.
    """
    with connected(source) as conn:
        measured = frame(conn, _measured(side, filters))
        missing = frame(conn, _missing(side, filters))
    measured = measured.sort_values(["started_at", "run_started_at", "run_id", "replicate"]).drop_duplicates(
        "cell_key", keep="last"
    )
    rows = pd.concat([_typed(measured), missing]) if len(missing) else _typed(measured)
    rows = moments(rows.reindex(columns=[*CELL_COLUMNS, *MEASURED_COLUMNS]), "started_at")
    rows = rows.astype({"replicate": "Int64", "batch_size": int})
    order = ["suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id"]
    return rows.sort_values(order, ignore_index=True)


def side_environments(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> dict[str, dict[str, Any]]:
    """The fingerprints under which a side's cells were measured, by `environment_id`; lost records are left out."""
    used = _joined(select(measurements.c.environment), measurements)
    used = used.where(measurements.c.run.in_(side.keys), *filters.conditions())
    query = select(Environment.environment_id, Environment.data).where(
        Environment.data.is_not(None), Environment.id.in_(used)
    )
    with connected(source) as conn:
        return {row.environment_id: row.data for row in conn.execute(query)}


def _measured(side: Side, filters: CellFilter) -> Query:
    of_row = measurements.c
    spread = and_(
        Samples.run == of_row.run,
        Samples.cell == of_row.cell,
        Samples.replicate == of_row.replicate,
        Samples.metric == "compiled_ms",
    )
    plain = ("replicate", "status", "started_at", "wall_s", "stage", "exception", "message", "hint", *METRICS)
    columns = [of_row[name] for name in plain]
    named = (Run.run_id, Testbed.testbed_id, Program.program_id, Environment.environment_id, Samples.spread)
    query = select(Run.started_at.label("run_started_at"), *_CELL, *named, *columns)
    return (
        _joined(query, measurements)
        .join(Run, Run.id == of_row.run)
        .join(Testbed, Testbed.id == Run.testbed)
        .outerjoin(Program, Program.id == of_row.program)
        .outerjoin(Environment, Environment.id == of_row.environment)
        .outerjoin(Samples, spread)
        .where(of_row.run.in_(side.keys), *filters.conditions())
    )


def _missing(side: Side, filters: CellFilter) -> Query:
    """Cells that some run of the side planned and none measured."""
    measured = exists().where(measurements.c.run.in_(side.keys), measurements.c.cell == Planned.cell)
    query = _joined(select(*_CELL).distinct(), Base.metadata.tables["planned"])
    return query.where(Planned.run.in_(side.keys), ~measured, *filters.conditions())


_CELL = (
    CellRow.id.label("cell_key"),
    CellRow.cell_id,
    Model.suite,
    Model.name.label("model"),
    CellRow.phase,
    CellRow.dtype,
    CellRow.device,
    CellRow.batch_size,
    ConfigRow.name.label("config"),
    ConfigRow.config_id,
)


def _joined(query: Query, rows: Table) -> Query:
    """`rows` (measurements or plans) joined to what names their cells."""
    return (
        query.select_from(rows)
        .join(CellRow, CellRow.id == rows.c.cell)
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
    )


def _typed(measured: pd.DataFrame) -> pd.DataFrame:
    """Numbers as numbers also in a column that holds nothing but NULL."""
    return measured.astype(dict.fromkeys(("spread", "wall_s", "started_at", *METRICS), float))
