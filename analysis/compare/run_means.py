"""The value of a cell on a side that measured it several times."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sqlalchemy import Connection, func, select

from analysis.compare.repeats import RepeatRows
from collector.metrics import METRICS
from collector.vocabulary import Status
from db.queries.repeats import rows_of_runs
from db.queries.sides import Side
from db.schema import measurements

#: Metrics that may be 0, or that say how good an output is: the newest measurement counts.
_NEWEST = {"error_rmse_ratio", "cosine", "leak_bytes_per_call"}
_AVERAGED = [name for name, metric in METRICS.items() if not metric.is_count and name not in _NEWEST]


def with_run_means(conn: Connection, side: Side, cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of a side (`side_rows`) with the mean of its runs for each cell that passes and was measured several times.

    A metric is then the geometric mean over the runs in which the cell passed (`RepeatRows.of_side`, which verdicts use as
    well). Its status and counts stay those of the newest measurement.
    """
    means = _run_means(conn, side)
    if means.empty:
        return cells
    means = means.reindex(cells["cell_id"]).set_axis(cells.index)
    passed = cells["status"] == Status.PASS.value
    return cells.assign(**{name: means[name].where(passed & means[name].notna(), cells[name]) for name in _AVERAGED})


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
