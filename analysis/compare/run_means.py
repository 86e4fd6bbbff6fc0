"""The value of a cell on a side that measured it several times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from sqlalchemy import Connection, func, select

from analysis.compare.repeats import RepeatRows
from collector.metrics import METRICS
from collector.vocabulary import Status
from db.queries.repeats import rows_of_runs
from db.queries.side_rows import SideCells
from db.queries.sides import Side
from db.schema import measurements

#: Metrics that may be 0, or that say how good an output is: the newest measurement counts.
_NEWEST = {"error_rmse_ratio", "cosine", "leak_bytes_per_call"}
_AVERAGED = [name for name, metric in METRICS.items() if not metric.is_count and name not in _NEWEST]


def with_run_means(conn: Connection, side: Side, cells: SideCells) -> SideCells:
    """The side with the mean of its runs for each cell that passes and was measured several times.

    A metric is then the geometric mean over the runs in which the cell passed (`RepeatRows.of_side`, which verdicts use as
    well). Its status and counts stay those of the newest measurement.
    """
    means = _run_means(conn, side)
    if means.empty:
        return cells
    means = means.reindex(np.asarray(cells.names.columns["cell_id"].take(cells.places)))
    replaced = np.asarray(cells.columns["status"] == Status.PASS.value, dtype=bool)[:, None] & means.notna().to_numpy()
    columns = {name: np.where(replaced[:, at], means[name], cells.columns[name]) for at, name in enumerate(_AVERAGED)}
    return replace(cells, columns=cells.columns | columns)


def _run_means(conn: Connection, side: Side) -> pd.DataFrame:
    """A row for each cell that several runs or replicates of the side measured, by its cell_id."""
    count, cells = func.count(), func.count(measurements.c.cell.distinct())
    measured, different = conn.execute(select(count, cells).where(measurements.c.run.in_(side.keys))).one()
    if measured == different:
        return pd.DataFrame()
    rows = RepeatRows(rows_of_runs(conn, side.keys, _AVERAGED))
    several = np.bincount(rows.cell) > 1
    means = {metric: np.exp(rows.of_side(side.keys, metric)[0][several]) for metric in _AVERAGED}
    return pd.DataFrame(means, index=rows.cells[several])
