"""Many runs at once: the series of a branch, repeats of the same cells, the history of a model or a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Double, Integer, Select, case, cast, select

from collector.bundle import CONFIRM
from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, Status
from db.connecting import Query, Source, by_key, chunks, connected, frame, framed
from db.nights import is_measured, order_in_time
from db.queries.cells import CELL_COLUMNS, EVERYTHING, CellFilter, cell_names
from db.queries.details import is_untimed
from db.queries.sides import Side
from db.schema import (
    GEOMEANS,
    HISTORY_METRICS,
    MEANS,
    CellRow,
    Commit,
    ConfigRow,
    Environment,
    Planned,
    Program,
    Run,
    Testbed,
    measurements,
    summaries,
)

#: Runs of a testbed that a noise model looks back on: older ones are of another machine room and another compiler.
LOOK_BACK = 30
#: Read like a metric: 1 where power or heat held the GPU's clocks down, 0 where not, NaN where the reasons were not read.
THROTTLED = "throttled"
_OF_CELL = (CellRow.cell_id, CellRow.model, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)

#: Returns `rows_of_runs` of one run, by its number; a server caches the result.
ReadRun = Callable[[int], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Repeats:
    """The stored measurements of some cells. Runs, cells, commits, models, testbeds and programs are numbers of the store.

    - `rows`: as `rows_of_runs`, of the chosen cells only; the runs in any order
    - `runs`: run, night, branch, commit and testbed of each run, oldest first; runs that confirm a night stand with the night
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
    of_sides: Sequence[str] = (),
) -> Repeats:
    """Return the measurements that the cells of some sides have on the sides' testbeds.

    Of each testbed the sides' own runs count, and the newest `look_back` runs that started no later than the newest own run,
    with the runs that confirm their nights. `of_sides` are further metrics, which are read of the sides' own runs only: other
    rows have NaN. `read` is called for the rows of each run instead of reading them all at once, and decides on the metrics.
    A measurement that was not timed, since its code is known, counts for the sides' own runs only, and not there unless
    `with_untimed`. Raises `KeyError` for a metric that does not exist.
    """
    own = sorted({key for side in sides for key in side.keys})
    measured = select(measurements.c.cell).where(measurements.c.run.in_(own)).distinct()
    with connected(source) as conn:
        runs = _runs(conn, sides, look_back)
        cells = frame(conn, select(CellRow.id.label("cell"), *_OF_CELL).where(CellRow.id.in_(measured)))
        if read is None:
            others = sorted(set(runs["run"].tolist()) - set(own))
            parts = [
                rows_of_runs(conn, some, names, of_cells=measured)
                for some, names in ((own, [*metrics, *of_sides]), (others, metrics))
            ]
            rows = pd.concat(parts, ignore_index=True)
        else:
            rows = pd.concat([read(run) for run in runs["run"].tolist()], ignore_index=True)
            rows = rows[rows["cell"].isin(cells["cell"])]
    wanted = rows["untimed"] == 0
    if with_untimed:
        wanted |= rows["run"].isin(own)
    return Repeats(rows if wanted.all() else rows[wanted], runs, cells)


def rows_of_runs(
    source: Source, runs: Iterable[int], metrics: Sequence[str], *, of_cells: Select[int] | None = None
) -> pd.DataFrame:
    """Return a row for each measurement of these runs (by number), in the order of run, cell and replicate.

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
    """Return the column of a metric as it is judged: its value, or its floor if that is higher.

    A metric with a floor (the tuning time) is NULL on testbeds that share tuning results: the process that tunes first tunes for
    all, and takes long whatever torch does. Raises `KeyError` for a metric that does not exist.
    """
    value, floor = measurements.c[METRICS[name].name], METRICS[name].floor
    if not floor:
        return value
    of_run = select(Run.id).join(Testbed, Testbed.id == Run.testbed)
    shares = measurements.c.run.in_(of_run.where(Testbed.data["tuning"].as_string() == "shared"))
    return cast(case((shares, None), (value < floor, floor), else_=value), Double).label(name)


def _runs(conn: Connection, sides: Sequence[Side], look_back: int) -> pd.DataFrame:
    """Return the sides' own runs, and for each testbed the runs that the noise is learned from."""
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


#: The most runs that one query asks for.
_CHUNK = 50


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """One run as a point of series. `key` and `environment` are the database's own numbers, good for this database only.

    `position` is the place of its commit in the imported history, None where it was not imported. `environment` is that of
    the run's first cell, None where it is not known or nothing was measured.
    """

    key: int
    run_id: str
    repo: str
    branch: str
    testbed_id: str
    commit: str
    position: int | None
    started_at: float
    environment: int | None


def series_runs(source: Source, *, branch: str | None = None) -> list[SeriesRun]:
    """Return all runs (of a branch) in the order of the repository's history: by the place of their commits, then in time.

    A commit that no import has placed comes after every placed one that had been measured when its run started. Where
    bundles date every such commit of a branch, as bundles of released builds do, these come by their dates among each other.
    """
    first = (
        select(measurements.c.environment).where(measurements.c.run == Run.id).order_by(measurements.c.cell).limit(1)
    )
    query = (
        select(Run.id, Run.run_id, Commit.repo, Run.branch, Testbed.testbed_id, Commit.sha, Commit.position)
        .add_columns(Run.started_at, first.scalar_subquery(), Commit.author_date)
        .join(Commit, Commit.id == Run.commit)
        .join(Testbed, Testbed.id == Run.testbed)
        .where(is_measured(), *([] if branch is None else [Run.branch == branch]))
        .order_by(*order_in_time(), Run.run_id)
    )
    with connected(source) as conn:
        rows = conn.execute(query).all()
    runs, dates = [SeriesRun(*row[:-1]) for row in rows], [row[-1] for row in rows]
    undated = {
        (run.repo, run.branch) for run, date in zip(runs, dates, strict=True) if run.position is None and date is None
    }
    reached: dict[tuple[str, str], int] = {}
    places = []
    for run, date in zip(runs, dates, strict=True):
        line = (run.repo, run.branch)
        reached[line] = max(reached.get(line, -1), -1 if run.position is None else run.position)
        place = reached[line] if run.position is None else run.position
        by_date = date if run.position is None and line not in undated else 0.0
        places.append((*line, place, run.position is None, by_date))
    order = sorted(range(len(runs)), key=places.__getitem__)  # stable: runs of one place stay by start
    return [runs[at] for at in order]


def runs_in_order(source: Source) -> list[str]:
    """Return the names of all runs, in each branch in the order of `series_runs`, branches among each other by date."""
    reached: dict[tuple[str, str], float] = {}
    dated = []
    for run in series_runs(source):
        line = (run.repo, run.branch)
        reached[line] = max(reached.get(line, 0.0), run.started_at)
        dated.append((reached[line], run.run_id))
    return [run_id for _, run_id in sorted(dated, key=itemgetter(0))]  # stable


def passing_values(source: Source, runs: Sequence[int], metric: str) -> NDArray[np.float64]:
    """Return run, cell (both by number) and value of each cell of these runs that passed with a positive value of a metric."""
    row = measurements.c
    value = row[METRICS[metric].name]
    query = select(row.run, row.cell, value).where(row.status == Status.PASS, value > 0)
    rows: list[Any] = []
    with connected(source) as conn:
        for some in chunks(map(int, runs)):
            of_some = query.where(row.run.in_(some)).order_by(row.run, row.cell, row.replicate)
            rows += conn.execute(of_some).all()
    # `np.array` takes ten times as long for rows.
    return np.fromiter(chain.from_iterable(rows), np.float64, 3 * len(rows)).reshape(-1, 3)


def series_values(source: Source, runs: Sequence[int], metrics: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """Yield the values that these runs (by number) measured, some runs at a time: columns run, cell, passed and the metrics.

    `passed` is 1, 0 for a failure, and NaN for a cell that could not be judged (`NOT_APPLICABLE`, such as `skipped`); a metric
    that was not measured is NaN, and values are as `judged_value` has them. A cell that was not timed again, since its code is
    known, has no row: it tells nothing new. Run and cell are the database's own numbers. Replicates have a row each. Raises
    `KeyError` for a metric that does not exist.
    """
    row = measurements.c
    passed = case((row.status == Status.PASS, 1), (row.status.in_(sorted(NOT_APPLICABLE)), None), else_=0)
    query = select(row.run, row.cell, passed, *map(judged_value, metrics)).where(~is_untimed())
    for some in chunks(map(int, runs), _CHUNK):
        with connected(source) as conn:
            rows = conn.execute(query.where(row.run.in_(some)).order_by(row.run, row.cell, row.replicate)).all()
        if rows:
            # By columns: numpy takes ten times as long for rows.
            yield np.array(list(zip(*rows, strict=True)), dtype=np.float64).T


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The program and environment of one measurement, by the database's numbers, and its status."""

    program: int | None
    environment: int | None
    status: str


def surroundings(source: Source, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Surroundings]:
    """Return program, environment and status of the newest replicate of each (run, cell), by number, that was measured."""
    of_run: dict[int, list[int]] = {}
    for run, cell in sorted(set(wanted)):
        of_run.setdefault(run, []).append(cell)
    row = measurements.c
    columns = (row.cell, row.program, row.environment, row.status)
    by_cell: dict[tuple[int, int], Surroundings] = {}
    with connected(source) as conn:
        for run, cells in of_run.items():
            for some in chunks(cells):
                query = select(*columns).where(row.run == run, row.cell.in_(some)).order_by(row.cell, row.replicate)
                for cell, program, environment, status in conn.execute(query):
                    by_cell[run, cell] = Surroundings(program, environment, status)
    return by_cell


def environments_of(source: Source, numbers: Iterable[int | None]) -> dict[int, dict[str, Any]]:
    """Return the fingerprints of these environments (by number); environments whose record was lost are left out."""
    return by_key(source, Environment.id, Environment.data, numbers)


def programs_of(source: Source, numbers: Iterable[int | None]) -> dict[int, dict[str, Any]]:
    """Return the effective options of these programs (by number); programs whose record was lost are left out."""
    return by_key(source, Program.id, Program.options, numbers)


#: The metrics that a suite's history has an average of.
SUITE_METRICS = (*GEOMEANS, *MEANS)
_RUN = ("run_id", "branch", "started_at", "attempt", "label", "commit", "testbed_id")
_CELL_COLUMNS = tuple(name for name in CELL_COLUMNS if name not in ("suite", "model"))
_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")


def model_history(source: Source, suite: str, model: str, *, metrics: Sequence[str] = HISTORY_METRICS) -> pd.DataFrame:
    """Return all cells of a model over all runs that planned or measured them, oldest run first.

    Columns: run_id, branch, started_at (UTC), attempt, label, commit, testbed_id; cell_id, phase, dtype, device,
    batch_size, config, config_id; replicate, status, program_id and the metrics (NaN where not measured, and where a cell
    was not timed again, since its code is known). A run that planned a cell and has no measurement of it has a row without
    status and replicate. Raises `KeyError` for a metric that does not exist.
    """
    wanted = list(dict.fromkeys(METRICS[name].name for name in metrics))
    row = measurements.c
    values = (case((is_untimed(), None), else_=row[name]).label(name) for name in wanted)
    columns = (row.cell, row.run, row.replicate, row.status, row.program, *values)
    with connected(source) as conn:
        names = cell_names(conn, CellFilter(suites=(suite,), models=(model,)))
        of_model = names.index.tolist()
        rows: list[Sequence[Any]] = [*conn.execute(select(*columns).where(row.cell.in_(of_model))).all()]
        absent = (None,) * (len(columns) - 2)
        planned = select(Planned.cell, Planned.run).where(Planned.cell.in_(of_model))
        rows += [(*place, *absent) for place in conn.execute(planned)]
        runs = frame(conn, _runs_query(None))
        programs = frame(conn, select(Program.id.label("program"), Program.program_id))
    # Names are joined here: a query would fetch each of them once a row.
    table = framed(rows, columns).merge(runs.assign(place=range(len(runs))), on="run")
    table = table.merge(names, left_on="cell", right_index=True).merge(programs, on="program", how="left")
    table = table.sort_values(["place", "cell_id", "replicate"], ignore_index=True)
    return _dated(table)[[*_RUN, *_CELL_COLUMNS, "replicate", "status", "program_id", *wanted]].astype(
        {"replicate": "Int64"}
    )


def suite_history(source: Source, *, filters: CellFilter = EVERYTHING, branch: str | None = None) -> pd.DataFrame:
    """Return every group's figures over all runs, oldest run first, then by name, from the summaries.

    Columns: the names of the run (see `model_history`), suite, phase, dtype, device, config, config_id, the counts planned,
    measured, missing, passed, failed, not_applicable, attempted (measured less not applicable), pass_rate (passed over
    attempted, 0 to 1), and of each metric of `SUITE_METRICS` its average (geometric means of `GEOMEANS`, means of `MEANS`, NaN
    where no cell has it) and the count `n_<metric>`. Raises `ValueError` where the filter names models.
    """
    if filters.models:
        raise ValueError("a suite's history is kept for all its models together")
    averages = (*(f"n_{name}" for name in SUITE_METRICS), *SUITE_METRICS)
    group = ("suite", "phase", "dtype", "device", *_COUNTS, *averages)
    query = select(summaries.c.run, ConfigRow.name.label("config"), ConfigRow.config_id)
    query = query.add_columns(*(summaries.c[name] for name in group))
    query = query.join(ConfigRow, ConfigRow.id == summaries.c.config).where(*filters.of_summaries())
    with connected(source) as conn:
        table, runs = frame(conn, query), frame(conn, _runs_query(branch))
    table = table.merge(runs.assign(place=range(len(runs))), on="run")
    order = ["place", "suite", "phase", "dtype", "device", "config", "config_id"]
    table = table.sort_values(order, ignore_index=True)
    attempted = table["measured"] - table["not_applicable"]
    table = _dated(table).assign(
        missing=table["planned"] - table["measured"],
        attempted=attempted,
        pass_rate=table["passed"] / attempted.astype(np.float64).where(attempted > 0),
    )
    return table[[*_RUN, *group, "config", "config_id", "missing", "attempted", "pass_rate"]]


def _runs_query(branch: str | None) -> Query:
    """Return a select of the runs (of a branch) that measured, in the order of their start."""
    columns = (Run.id.label("run"), Run.run_id, Run.branch, Run.started_at, Run.attempt, Run.label)
    query = select(*columns, Commit.sha.label("commit"), Testbed.testbed_id)
    query = query.join(Commit, Run.commit == Commit.id).join(Testbed, Run.testbed == Testbed.id)
    of_branch = [] if branch is None else [Run.branch == branch]
    return query.where(is_measured(), *of_branch).order_by(Run.started_at, Run.run_id)


def _dated(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `started_at` as times in UTC."""
    return rows.assign(started_at=pd.to_datetime(rows["started_at"], unit="s", utc=True))
