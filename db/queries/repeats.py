"""The same cells in many runs: what a noise model is learned from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pandas as pd
from sqlalchemy import ColumnElement, Double, Select, case, cast, select

from collector.metrics import METRICS
from db.connecting import Source, connected, frame
from db.queries.sides import Side
from db.schema import CellRow, Run, Testbed, measurements

#: Runs of a testbed that a noise model looks back on: older ones are of another machine room and another compiler.
LOOK_BACK = 30
#: Can be asked for like a metric: 1 where power or heat held the GPU's clocks down, 0 where not, NaN where nobody looked.
THROTTLED = "throttled"
_OF_CELL = (CellRow.cell_id, CellRow.model, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)


def repeats(
    source: Source, sides: Sequence[Side], metrics: Sequence[str], *, look_back: int = LOOK_BACK
) -> pd.DataFrame:
    """The measurements that the cells of some sides have on the sides' testbeds.

    Of each testbed the sides' own runs count, and the newest `look_back` runs that started no later than the newest of
    those. A row a measurement, oldest run first. Columns: cell_id, model, phase, dtype, device, batch_size, run, branch,
    commit, testbed, program, replicate, status, started_at (seconds since 1970) and the metrics (NaN where not measured);
    model, run (as in `Side.keys`), commit, testbed and program are the database's own numbers. `THROTTLED` can be asked
    for like a metric.

    Raises:
        KeyError: a metric that does not exist.
    """
    with connected(source) as conn:
        runs = runs_behind(conn, sides, look_back=look_back)
        return rows_of_runs(conn, runs, metrics, cells_of=[key for side in sides for key in side.keys])


def runs_behind(source: Source, sides: Sequence[Side], *, look_back: int = LOOK_BACK) -> list[int]:
    """The runs (by number) whose rows `repeats` gives, oldest first."""
    found = {key for side in sides for key in side.keys}
    with connected(source) as conn:
        for testbed_id, newest in _testbeds(sides).items():
            found.update(conn.execute(_newest(testbed_id, newest, look_back)).scalars())
        ordered = select(Run.id).where(Run.id.in_(sorted(found))).order_by(Run.started_at, Run.id)
        return list(conn.execute(ordered).scalars())


def rows_of_runs(
    source: Source, runs: Collection[int], metrics: Sequence[str], *, cells_of: Collection[int] | None = None
) -> pd.DataFrame:
    """The rows of `repeats` of these runs (by number): of the cells that the runs `cells_of` measured, or of all.

    Raises:
        KeyError: a metric that does not exist.
    """
    row = measurements.c
    query = select(row.cell, row.run, row.program, row.replicate, row.status, row.started_at)
    query = query.add_columns(*(_column(name) for name in metrics)).where(row.run.in_(sorted(runs)))
    measured = select(row.cell).where(row.run.in_(sorted(runs if cells_of is None else cells_of))).distinct()
    with connected(source) as conn:
        # Names are joined here: of 50,000 rows a query would fetch each of them 30 times.
        rows = frame(conn, query if cells_of is None else query.where(row.cell.in_(measured)))
        cells = frame(conn, select(CellRow.id.label("cell"), *_OF_CELL).where(CellRow.id.in_(measured)))
        of_run = (Run.id.label("run"), Run.branch, Run.commit, Run.testbed)
        ordered = frame(conn, select(*of_run).where(Run.id.in_(sorted(runs))).order_by(Run.started_at, Run.id))
    ordered["place"] = range(len(ordered))
    found = rows.astype({"program": "float64"}).merge(ordered, on="run").merge(cells, on="cell")
    return found.sort_values(["place", "cell", "replicate"], ignore_index=True).drop(columns=["place", "cell"])


def _column(name: str) -> ColumnElement[Any]:
    if name == THROTTLED:
        reasons = measurements.c.throttled
        return cast(case((reasons.is_(None), None), (reasons == "", 0), else_=1), Double).label(THROTTLED)
    return measurements.c[METRICS[name].name]


def _testbeds(sides: Sequence[Side]) -> dict[str, float]:
    """The testbeds of the sides, and when the newest of the sides' runs on each started."""
    newest: dict[str, float] = {}
    for run in (run for side in sides for run in side.runs):
        newest[run.testbed_id] = max(newest.get(run.testbed_id, 0.0), run.started_at.timestamp())
    return newest


def _newest(testbed_id: str, newest: float, look_back: int) -> Select[int]:
    return (
        select(Run.id)
        .join(Testbed, Testbed.id == Run.testbed)
        .where(Testbed.testbed_id == testbed_id, Run.started_at <= newest)
        .order_by(Run.started_at.desc(), Run.run_id.desc())
        .limit(look_back)
    )
