"""The same cells in many runs: what a noise model is made of."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sqlalchemy import Select, select

from collector.metrics import METRICS
from db.connecting import Source, connected, frame
from db.schema import CellRow, Commit, Model, Program, Run, Testbed, measurements
from db.sides import Side

#: Runs of a testbed that a noise model looks back on: older ones tell of another machine room and another compiler.
LOOK_BACK = 30


def repeats(
    source: Source, sides: Sequence[Side], metrics: Sequence[str], *, look_back: int = LOOK_BACK
) -> pd.DataFrame:
    """The measurements that the cells of some sides have on the sides' testbeds.

    Of each testbed the sides' own runs count, and the newest `look_back` runs that started no later than the newest of
    those. A row a measurement, oldest run first. Columns: cell_id, suite, model, phase, dtype, device, batch_size, run (the
    number of `Side.keys`), branch, commit, testbed_id, program_id, replicate, status, started_at (seconds since 1970) and
    the metrics (NaN where not measured).

    Raises:
        KeyError: a metric that does not exist.
    """
    keys = {key for side in sides for key in side.keys}
    row = measurements.c
    of_cell = (CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    of_run = (row.run, Run.branch, Commit.sha.label("commit"), Testbed.testbed_id, Program.program_id)
    query = (
        select(CellRow.cell_id, Model.suite, Model.name.label("model"), *of_cell, *of_run)
        .add_columns(row.replicate, row.status, row.started_at, *(row[METRICS[name].name] for name in metrics))
        .select_from(measurements)
        .join(CellRow, CellRow.id == row.cell)
        .join(Model, Model.id == CellRow.model)
        .join(Run, Run.id == row.run)
        .join(Commit, Commit.id == Run.commit)
        .join(Testbed, Testbed.id == Run.testbed)
        .outerjoin(Program, Program.id == row.program)
        .where(row.cell.in_(select(row.cell).where(row.run.in_(sorted(keys))).distinct()))
        .order_by(Run.started_at, Run.id, row.cell, row.replicate)
    )
    with connected(source) as conn:
        runs = set(keys)
        for testbed_id, newest in _testbeds(sides).items():
            runs.update(conn.execute(_newest(testbed_id, newest, look_back)).scalars())
        found = frame(conn, query.where(row.run.in_(sorted(runs))))
    return found.astype(dict.fromkeys(metrics, float))


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
