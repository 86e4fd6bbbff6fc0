"""The series of a branch and testbed as tables of numbers: a row a cell, a column a commit, NaN where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from collector.metrics import METRICS
from db.connecting import Source, connected
from db.queries.cell_names import CellNames, cell_names
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.series import SeriesRun, series_runs, series_values

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point:
    """One commit as one testbed measured it: the runs of it in one environment, in the order of their start.

    `place` counts the commits that were measured on the branch, whatever the testbed, in the order of the repository.
    """

    place: int
    commit: str
    position: int | None
    started_at: float
    environment: int | None
    runs: tuple[SeriesRun, ...]


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """All series of one branch and testbed. `keys` are the database's numbers of the cells, row by row.

    `values` has a table of each metric: the geometric mean over the runs of a point in which the cell passed, in the metric's
    unit. `passed` is 1 where it passed in all of them, 0 where in none, between where in some.
    """

    repo: str
    branch: str
    testbed_id: str
    points: tuple[Point, ...]
    keys: npt.NDArray[np.int64]
    values: Mapping[str, Numbers]
    passed: Numbers


def read_series(
    source: Source,
    metrics: Sequence[str],
    *,
    branch: str | None = None,
    filters: CellFilter = EVERYTHING,
    window: int | None = None,
) -> tuple[CellNames, list[SeriesTable]]:
    """The names of the chosen cells, and a table for every branch and testbed that has runs; no other table is held meanwhile.

    `window` reads only the newest so many commits of each, None all. Cells that were never measured in them have no row.

    Raises:
        KeyError: a metric that does not exist.
    """
    metrics = [METRICS[name].name for name in metrics]
    with connected(source) as conn:
        names = cell_names(conn, filters)
        chosen = np.sort(names.index.to_numpy())
        lines = _lines(series_runs(conn, branch=branch))
        return names, [
            table
            for (repo, name, testbed), points in lines
            if (table := _table(conn, chosen, (repo, name, testbed), _newest(points, window), metrics)) is not None
        ]


def _lines(runs: Sequence[SeriesRun]) -> Iterator[tuple[tuple[str, str, str], list[Point]]]:
    """The points of each repository, branch and testbed, oldest first; the lines in the order of their names."""
    of_line: dict[tuple[str, str, str], list[tuple[int, SeriesRun]]] = {}
    places: dict[tuple[str, str], dict[str, int]] = {}
    for run in runs:
        place = places.setdefault((run.repo, run.branch), {})
        number = place.setdefault(run.commit, len(place))
        of_line.setdefault((run.repo, run.branch, run.testbed_id), []).append((number, run))
    for name in sorted(of_line):
        yield name, [_point(list(group)) for _, group in groupby(of_line[name], key=_same_point)]


def _same_point(numbered: tuple[int, SeriesRun]) -> tuple[int, int | None]:
    number, run = numbered
    return number, run.environment


def _point(numbered: Sequence[tuple[int, SeriesRun]]) -> Point:
    number, first = numbered[0]
    runs = tuple(run for _, run in numbered)
    return Point(number, first.commit, first.position, first.started_at, first.environment, runs)


def _newest(points: list[Point], window: int | None) -> list[Point]:
    return points if window is None else points[-window:]


def _table(
    source: Source,
    chosen: npt.NDArray[np.int64],
    name: tuple[str, str, str],
    points: list[Point],
    metrics: Sequence[str],
) -> SeriesTable | None:
    column_of = {run.key: at for at, point in enumerate(points) for run in point.runs}
    columns = np.full(max(column_of, default=0) + 1, -1)
    columns[list(column_of)] = list(column_of.values())
    size = (len(chosen), len(points))
    sums = {metric: np.zeros(size) for metric in (*metrics, "passed")}
    counts = {metric: np.zeros(size) for metric in sums}
    for rows in series_values(source, list(column_of), metrics):
        at = np.minimum(np.searchsorted(chosen, rows[:, 1]), max(len(chosen) - 1, 0))
        is_chosen = chosen[at] == rows[:, 1] if len(chosen) else np.zeros(len(rows), dtype=bool)
        rows, at = rows[is_chosen], at[is_chosen]
        place = at * len(points) + columns[rows[:, 0].astype(np.int64)]
        passed = rows[:, 2] == 1
        _add(sums["passed"], counts["passed"], place, rows[:, 2], np.isfinite(rows[:, 2]))
        for number, metric in enumerate(metrics):
            value = rows[:, 3 + number]
            usable = passed & (value > 0) & np.isfinite(value)
            _add(sums[metric], counts[metric], place, np.log(np.where(usable, value, 1.0)), usable)
    has = np.flatnonzero((counts["passed"] > 0).any(axis=1))
    if not len(has):
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {metric: sums[metric][has] / counts[metric][has] for metric in sums}
    values = {metric: np.exp(means[metric]) for metric in metrics}
    return SeriesTable(*name, tuple(points), chosen[has], values, means["passed"])


def _add(
    sums: Numbers, counts: Numbers, place: npt.NDArray[np.int64], values: Numbers, usable: npt.NDArray[np.bool_]
) -> None:
    np.add.at(sums.reshape(-1), place[usable], values[usable])
    np.add.at(counts.reshape(-1), place[usable], 1.0)
