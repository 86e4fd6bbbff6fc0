"""Many series at once: the runs of a branch in the order of its commits, and the values of all cells in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import case, select

from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, Status
from db.connecting import Source, by_key, chunks, connected
from db.queries.code import is_untimed
from db.queries.repeats import judged_value
from db.runs import is_measured, order_in_time
from db.schema import Commit, Environment, Program, Run, Testbed, measurements

#: Runs that one query asks for.
_CHUNK = 50


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """One run as a point of series. `key` and `environment` are the database's own numbers, good for this database only.

    `position` is the place of its commit in the imported history, None where no import told it. `environment` is that of
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
    """All runs (of a branch) in the order of the repository's history: by the place of their commits, then in time.

    A commit that no import has placed comes after every placed one that had been measured when its run started. Where
    bundles date every such commit of a branch, as those of released builds do, these come by their dates among each other.
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
    order = sorted(range(len(runs)), key=places.__getitem__)  # stable: by start where the places are one
    return [runs[at] for at in order]


def runs_in_order(source: Source) -> list[str]:
    """The names of all runs, those of each branch in the order of `series_runs`, branches among each other by date."""
    reached: dict[tuple[str, str], float] = {}
    dated = []
    for run in series_runs(source):
        line = (run.repo, run.branch)
        reached[line] = max(reached.get(line, 0.0), run.started_at)
        dated.append((reached[line], run.run_id))
    return [run_id for _, run_id in sorted(dated, key=itemgetter(0))]  # stable


def passing_values(source: Source, runs: Sequence[int], metric: str) -> NDArray[np.float64]:
    """Run, cell (both by number) and value of each cell of these runs that passed with a positive value of a metric."""
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
    """What these runs (by number) measured, some runs at a time: columns run, cell, passed and the metrics.

    `passed` is 1, 0 for a failure, and NaN for what could not be asked (`skipped`, `unavailable`); a metric that was not
    measured is NaN, and values are as `judged_value` has them. A cell that was not timed again, since its code is known, has
    no row: it tells nothing new. Run and cell are the database's own numbers. Replicates have a row each. Raises `KeyError`
    for a metric that does not exist.
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
    """What one measurement was made with: the database's numbers of its program and environment, and how it ended."""

    program: int | None
    environment: int | None
    status: str


def surroundings(source: Source, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Surroundings]:
    """Of each (run, cell), by number, that was measured: the newest replicate's program, environment and status."""
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
    """The fingerprints of these environments (by number), those whose record was lost left out."""
    return by_key(source, Environment.id, Environment.data, numbers)


def programs_of(source: Source, numbers: Iterable[int | None]) -> dict[int, dict[str, Any]]:
    """The effective options of these programs (by number), those whose record was lost left out."""
    return by_key(source, Program.id, Program.options, numbers)
