"""The same cells in many runs: what a noise model is made of."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sqlalchemy import Select, select

from collector.metrics import METRICS
from db.connecting import Source, connected, frame
from db.schema import CellRow, Run, Testbed, measurements
from db.sides import Side

#: Runs of a testbed that a noise model looks back on: older ones tell of another machine room and another compiler.
LOOK_BACK = 30


def repeats(
    source: Source, sides: Sequence[Side], metrics: Sequence[str], *, look_back: int = LOOK_BACK
) -> pd.DataFrame:
    """The measurements that the cells of some sides have on the sides' testbeds.

    Of each testbed the sides' own runs count, and the newest `look_back` runs that started no later than the newest of
    those. A row a measurement, oldest run first. Columns: cell_id, model, phase, dtype, device, batch_size, run, branch, commit,
    testbed, program, replicate, status, started_at (seconds since 1970) and the metrics (NaN where not measured); model,
    run (as in `Side.keys`), commit, testbed and program are the database's own numbers.

    Raises:
        KeyError: a metric that does not exist.
    """
    row = measurements.c
    keys = {key for side in sides for key in side.keys}
    plain = (row.cell, row.run, row.program, row.replicate, row.status, row.started_at)
    wanted = select(row.cell).where(row.run.in_(sorted(keys))).distinct()
    with connected(source) as conn:
        runs = set(keys)
        for testbed_id, newest in _testbeds(sides).items():
            runs.update(conn.execute(_newest(testbed_id, newest, look_back)).scalars())
        # Names are joined here and not there: of 50,000 rows each name would be fetched 30 times.
        found = frame(
            conn,
            select(*plain, *(row[METRICS[name].name] for name in metrics))
            .where(row.run.in_(sorted(runs)), row.cell.in_(wanted))
            .order_by(row.run, row.cell, row.replicate),
        )
        cells = frame(conn, select(CellRow.id.label("cell"), *_OF_CELL).where(CellRow.id.in_(wanted)))
        of_run = (Run.id.label("run"), Run.branch, Run.commit, Run.testbed)
        ordered = frame(conn, select(*of_run).where(Run.id.in_(sorted(runs))).order_by(Run.started_at, Run.id))
    ordered["place"] = range(len(ordered))
    found = found.astype(dict.fromkeys(metrics, float)).merge(ordered, on="run").merge(cells, on="cell")
    return found.sort_values(["place", "cell", "replicate"], ignore_index=True).drop(columns=["place", "cell"])


_OF_CELL = (CellRow.cell_id, CellRow.model, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)


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
