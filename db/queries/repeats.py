"""The same cells in many runs: what a noise model is learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import ColumnElement, Connection, Double, Integer, Select, case, cast, select

from collector.bundle import CONFIRM
from collector.metrics import METRICS
from collector.vocabulary import Status
from db.connecting import Source, connected, frame
from db.queries.code import is_untimed
from db.queries.sides import Side
from db.runs import order_in_time
from db.schema import CellRow, Run, Testbed, measurements

#: Runs of a testbed that a noise model looks back on: older ones are of another machine room and another compiler.
LOOK_BACK = 30
#: Can be asked for like a metric: 1 where power or heat held the GPU's clocks down, 0 where not, NaN where nobody looked.
THROTTLED = "throttled"
_OF_CELL = (CellRow.cell_id, CellRow.model, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)

#: Reads `rows_of_runs` of one run, by its number; a server keeps what it has read.
ReadRun = Callable[[int], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Repeats:
    """What the store holds of some cells. All numbers of runs, cells, commits, models, testbeds and programs are the store's.

    - `rows`: as `rows_of_runs`, of the chosen cells only
    - `runs`: run, night, branch, commit and testbed of each run, oldest first; what confirms a night stands with the night
    - `cells`: cell, cell_id, model, phase, dtype, device and batch_size of each cell
    """

    rows: pd.DataFrame
    runs: pd.DataFrame
    cells: pd.DataFrame


def repeats(
    source: Source,
    sides: Sequence[Side],
    metrics: Sequence[str],
    *,
    look_back: int = LOOK_BACK,
    read: ReadRun | None = None,
    with_untimed: bool = True,
) -> Repeats:
    """The measurements that the cells of some sides have on the sides' testbeds.

    Of each testbed the sides' own runs count, and the newest `look_back` runs that started no later than the newest of
    those, with what confirms their nights. `read` is called for the rows of each run instead of reading them all at once. What
    was not timed, since its code is known, counts for the sides' own runs only, and not there unless `with_untimed`. Raises
    `KeyError` for a metric that does not exist.
    """
    own = sorted({key for side in sides for key in side.keys})
    measured = select(measurements.c.cell).where(measurements.c.run.in_(own)).distinct()
    with connected(source) as conn:
        runs = _runs(conn, sides, look_back)
        cells = frame(conn, select(CellRow.id.label("cell"), *_OF_CELL).where(CellRow.id.in_(measured)))
        if read is None:
            rows = rows_of_runs(conn, runs["run"].tolist(), metrics, of_cells=measured)
        else:
            rows = pd.concat([read(run) for run in runs["run"].tolist()], ignore_index=True)
            rows = rows[rows["cell"].isin(cells["cell"])]
    wanted = rows["untimed"] == 0
    if with_untimed:
        wanted |= rows["run"].isin(own)
    return Repeats(rows[wanted], runs, cells)


def rows_of_runs(
    source: Source, runs: Iterable[int], metrics: Sequence[str], *, of_cells: Select[int] | None = None
) -> pd.DataFrame:
    """A row for each measurement of these runs (by number), in the order of run, cell and replicate.

    Columns: run, cell, replicate, program (NaN where it is not known), passed and untimed (1 or 0), started_at (seconds
    since 1970) and the metrics (NaN where not measured); `THROTTLED` can be asked for like a metric. Raises `KeyError` for
    a metric that does not exist.
    """
    row = measurements.c
    passed = cast(row.status == Status.PASS.value, Integer).label("passed")
    untimed = cast(is_untimed(), Integer).label("untimed")
    query = select(row.run, row.cell, row.replicate, cast(row.program, Double).label("program"), passed, untimed)
    query = query.add_columns(row.started_at)
    query = query.add_columns(*(_column(name) for name in metrics)).where(row.run.in_(sorted(runs)))
    if of_cells is not None:
        query = query.where(row.cell.in_(of_cells))
    return frame(source, query.order_by(row.run, row.cell, row.replicate))


def _column(name: str) -> ColumnElement[Any]:
    if name == THROTTLED:
        reasons = measurements.c.throttled
        return cast(case((reasons.is_(None), None), (reasons == "", 0), else_=1), Double).label(THROTTLED)
    return judged_value(name)


def judged_value(name: str) -> ColumnElement[Any]:
    """Return what is judged of a metric: its value, at least its floor, and NULL for tuning under shared results.

    Who tunes first for all tunes long, whatever torch does. Raises `KeyError` for a metric that does not exist.
    """
    value, floor = measurements.c[METRICS[name].name], METRICS[name].floor
    if not floor:
        return value
    of_run = select(Run.id).join(Testbed, Testbed.id == Run.testbed)
    shares = measurements.c.run.in_(of_run.where(Testbed.data["tuning"].as_string() == "shared"))
    return cast(case((shares, None), (value < floor, floor), else_=value), Double).label(name)


def _runs(conn: Connection, sides: Sequence[Side], look_back: int) -> pd.DataFrame:
    """The sides' own runs, and for each testbed those that the noise is learned from."""
    wanted = {key for side in sides for key in side.keys}
    newest: dict[str, float] = {}
    for run in (run for side in sides for run in side.runs):
        newest[run.testbed_id] = max(newest.get(run.testbed_id, 0.0), run.started_at.timestamp())
    for testbed_id, started_at in newest.items():
        of_testbed = select(Run.id).join(Testbed, Testbed.id == Run.testbed).where(Testbed.testbed_id == testbed_id)
        earlier = of_testbed.where(Run.started_at <= started_at)
        in_order = earlier.where(Run.trigger != CONFIRM).order_by(Run.started_at.desc(), Run.run_id.desc())
        found = conn.execute(in_order.limit(look_back)).scalars().all()
        wanted.update(found)
        nights = select(Run.night).where(Run.id.in_(found))
        wanted.update(conn.execute(earlier.where(Run.trigger == CONFIRM, Run.night.in_(nights))).scalars())
    query = select(Run.id.label("run"), Run.night, Run.branch, Run.commit, Run.testbed).where(
        Run.id.in_(sorted(wanted))
    )
    return frame(conn, query.order_by(*order_in_time(), Run.id))
