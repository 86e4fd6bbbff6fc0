"""The cells of one side of a comparison: a row for every cell that its runs planned or measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from sqlalchemy import select

from collector.metrics import METRICS
from db.connecting import Source, connected, framed
from db.queries.cell_names import CELL_COLUMNS, names_query
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.sides import Side
from db.schema import CellRow, ConfigRow, Environment, Model, Planned, measurements, results

#: What a measurement adds to a cell's names; all of it is absent (None or NaN) in a row whose cell is missing.
MEASURED_COLUMNS = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id"),
    *("code_id", "stage", "exception", "message", "hint", "spread", *METRICS),
)


def side_rows(
    source: Source, side: Side, filters: CellFilter = EVERYTHING, *, metrics: Sequence[str] = tuple(METRICS)
) -> pd.DataFrame:
    """A row per expected cell, sorted by suite, model and config: `CELL_COLUMNS`, then `MEASURED_COLUMNS`.

    `status` is None where a cell was planned and never measured. Of several measurements of a cell (by several runs of
    the side, or as replicates of one run) the one that started last counts. `spread` is the robust relative spread of
    the `compiled_ms` samples. `started_at` is in UTC, latencies are in ms, peaks in bytes. Of the metrics only those
    that `metrics` names are read. Raises `KeyError` for a metric that does not exist.
    """
    unwanted = METRICS.keys() - {METRICS[name].name for name in metrics}
    columns = [*CELL_COLUMNS, *(name for name in MEASURED_COLUMNS if name not in unwanted)]
    query = select(*(results.c[name] for name in columns)).where(results.c.run_id.in_(side.run_ids))
    oldest_first = (results.c.started_at, results.c.run_started_at, results.c.run_id, results.c.replicate)
    planned = names_query().join(Planned, Planned.cell == CellRow.id).where(Planned.run.in_(side.keys))
    absent = (None,) * (len(columns) - len(CELL_COLUMNS))
    with connected(source) as conn:
        measured = conn.execute(query.where(*filters.of_results()).order_by(*oldest_first)).all()
        expected = conn.execute(planned.where(*filters.conditions())).all()
    rows: dict[str, Sequence[Any]] = {row[0]: row for row in measured}  # by cell_id: the newest of several remains
    for names in expected:
        rows.setdefault(names[0], (*names, *absent))
    in_order = sorted(rows.values(), key=lambda row: tuple(row[1 : len(CELL_COLUMNS)]))
    table = framed(in_order, query.selected_columns)
    return table.assign(
        started_at=pd.to_datetime(table["started_at"], unit="s", utc=True), replicate=table["replicate"].astype("Int64")
    )


def side_environments(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> dict[str, dict[str, Any]]:
    """The fingerprints under which a side's cells were measured, by `environment_id`; lost records are left out."""
    used = select(measurements.c.environment).where(measurements.c.run.in_(side.keys)).distinct()
    if filters != EVERYTHING:
        cells = select(CellRow.id).join(Model, Model.id == CellRow.model)
        cells = cells.join(ConfigRow, ConfigRow.id == CellRow.config).where(*filters.conditions())
        used = used.where(measurements.c.cell.in_(cells))
    query = select(Environment.environment_id, Environment.data).where(
        Environment.data.is_not(None), Environment.id.in_(used)
    )
    with connected(source) as conn:
        return {row.environment_id: row.data for row in conn.execute(query)}
