"""Series of a branch and testbed, changes of a series, and averages over the last nights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.side_differences import EnvironmentDifference
from analysis.stats.averages import Labels, Mask, Numbers
from analysis.stats.levels import LevelChange
from collector.metrics import METRICS
from collector.own_models import names_another_model
from db.connecting import Source, connected
from db.nights import NightInfo
from db.queries.cells import EVERYTHING, CellFilter, CellNames, cell_names
from db.queries.series import SeriesRun, series_runs, series_values
from db.queries.sides import Side


@dataclass(frozen=True, slots=True)
class Point:
    """One commit on one testbed: its runs in one environment, in the order of their start.

    `index` is the commit's place among all commits measured on the branch, on any testbed, in the order of the repository.
    """

    index: int
    commit: str
    position: int | None
    started_at: float
    environment: int | None
    runs: tuple[SeriesRun, ...]


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """All series of one branch and testbed. `keys` are the database's numbers of the cells, row by row.

    `values` has a table for each metric: the geometric mean over the runs of a point in which the cell passed, in the metric's
    unit. `passed` is the share of a point's runs in which the cell passed: 1 for all, 0 for none. NaN where nothing was measured.
    """

    repo: str
    branch: str
    testbed_id: str
    points: tuple[Point, ...]
    keys: Labels
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
    """Return the names of the chosen cells, and a table for every branch and testbed on which one of these cells was measured.

    `window` limits each table to that many newest points; None reads all. Cells that were never measured in them have no
    row. Raise `KeyError` for a metric that does not exist.
    """
    metrics = [METRICS[name].name for name in metrics]
    with connected(source) as conn:
        names = cell_names(conn, filters)
        chosen = np.sort(names.index.to_numpy())
        lines = _lines(series_runs(conn, branch=branch))
        tables = (
            _table(conn, chosen, name, points if window is None else points[-window:], metrics)
            for name, points in lines
        )
        return names, [table for table in tables if table is not None]


def _lines(runs: Sequence[SeriesRun]) -> Iterator[tuple[tuple[str, str, str], list[Point]]]:
    """Yield the points of each repository, branch and testbed, oldest first; the lines in the order of their names."""
    of_line: dict[tuple[str, str, str], list[SeriesRun]] = {}
    indices: dict[tuple[str, str], dict[str, int]] = {}
    for run in runs:
        of_branch = indices.setdefault((run.repo, run.branch), {})
        of_branch.setdefault(run.commit, len(of_branch))
        of_line.setdefault((run.repo, run.branch, run.testbed_id), []).append(run)
    for name in sorted(of_line):
        points = []
        for (commit, environment), group in groupby(of_line[name], key=lambda run: (run.commit, run.environment)):
            of_point = tuple(group)
            first, index = of_point[0], indices[name[:2]][commit]
            points.append(Point(index, commit, first.position, first.started_at, environment, of_point))
        yield name, points


def _table(
    source: Source, chosen: Labels, name: tuple[str, str, str], points: list[Point], metrics: Sequence[str]
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
        entry = at * len(points) + columns[rows[:, 0].astype(np.int64)]
        passed = rows[:, 2] == 1
        _add(sums["passed"], counts["passed"], entry, rows[:, 2], np.isfinite(rows[:, 2]))
        for number, metric in enumerate(metrics):
            value = rows[:, 3 + number]
            usable = passed & (value > 0) & np.isfinite(value)
            _add(sums[metric], counts[metric], entry, np.log(np.where(usable, value, 1.0)), usable)
    has = np.flatnonzero((counts["passed"] > 0).any(axis=1))
    if not len(has):
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {metric: sums[metric][has] / counts[metric][has] for metric in sums}
    values = {metric: np.exp(means[metric]) for metric in metrics}
    return SeriesTable(*name, tuple(points), chosen[has], values, means["passed"])


def _add(sums: Numbers, counts: Numbers, entry: Labels, values: Numbers, usable: Mask) -> None:
    """Add the usable values to `sums`, and their number to `counts`, at entries that are numbered row by row."""
    np.add.at(sums.reshape(-1), entry[usable], values[usable])
    np.add.at(counts.reshape(-1), entry[usable], 1.0)


class Direction(StrEnum):
    """The direction of a change, by whether lower or higher is better for the metric; a status that fails is worse."""

    WORSE = "worse"
    BETTER = "better"
    NEITHER = "neither"


class Certainty(StrEnum):
    """The certainty of a change. A `pending` one is too young to be established: wait for more nights."""

    ESTABLISHED = "established"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Span:
    """The points on both sides of a change: it came after `base`, the last point before, and by `onset`, the first after."""

    base: Point
    onset: Point

    @property
    def is_one_commit(self) -> bool:
        """Return whether both sides measured one commit: then no commit can be to blame."""
        return self.base.commit == self.onset.commit

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {"base": _point_json(self.base), "onset": _point_json(self.onset)}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one series: a cell on a branch and testbed, by one metric or (`metric` empty) by its status.

    `span` is the most likely place of the change, `possible` is the range where it can be as well: where the noise hides a small
    step, or since a flaky cell first failed. `is_over` is True if the series has gone back since, even if it left again.
    `levels` are in the metric's unit.
    `control` is new over old eager time at the same boundary, None for a metric without a control.
    `environment` and `program` are the other differences between the two sides of `span`, without torch's own version and
    commit.
    """

    repo: str
    branch: str
    testbed_id: str
    cell_id: str
    cell: str
    cell_key: int
    metric: str
    direction: Direction
    certainty: Certainty
    span: Span
    possible: Span
    is_over: bool
    levels: LevelChange | None = None
    control: float | None = None
    statuses: tuple[str, str] | None = None
    environment: tuple[EnvironmentDifference, ...] = ()
    program: tuple[EnvironmentDifference, ...] = ()

    @property
    def environment_changed(self) -> bool:
        """Return whether environment or options changed at the same boundary: then the commits are not the only suspects."""
        return bool(self.environment or self.program)

    @property
    def model_changed(self) -> bool:
        """Return whether the model, one of a user's own, changed at the same boundary: then no commit of torch is to blame."""
        return any(names_another_model(one.key, one.base, one.new) for one in self.environment)

    @property
    def worsening(self) -> float | None:
        """The factor by which the metric got worse: above 1 is worse, be it upwards or downwards. None for a status."""
        if self.levels is None:
            return None
        size = abs(math.log(self.levels.ratio))
        return math.exp(-size if self.direction is Direction.BETTER else size)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {
            **{name: getattr(self, name) for name in ("cell_id", "cell", "testbed_id")},
            "metric": self.metric or None,
            **{name: getattr(self, name) for name in ("direction", "certainty", "is_over")},
            "span": self.span.to_json(),
            "possible": self.possible.to_json(),
            "levels": _levels_json(self.levels) if self.levels else None,
            "control": self.control,
            "statuses": list(self.statuses) if self.statuses else None,
            "environment_changed": self.environment_changed,
            "environment": [one.to_json() for one in self.environment],
            "program": [one.to_json() for one in self.program],
        }


def _levels_json(levels: LevelChange) -> dict[str, float | None]:
    """Return the levels as a JSON object, with null for a number that is not known."""
    values = {name: getattr(levels, name) for name in ("before", "after", "now", "ratio", "low", "high", "p", "q")}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def _point_json(point: Point) -> dict[str, Any]:
    return {
        "commit": point.commit,
        "position": point.position,
        "started_at": datetime.fromtimestamp(point.started_at, UTC).isoformat(),
        "runs": [run.run_id for run in point.runs],
    }


#: Number of nights that are shown.
NIGHTS = 30
#: The figure passed over attempted; all other figures are metrics that are averaged.
RATE = "pass_rate"
#: A group of cells counts for a night if its average has as many cells as in the newest night, within this share. Else the
#: average would show the change of the models.
_ALIKE = 0.05
_GROUP = ["suite", "phase", "dtype", "device", "config_id"]


def nights_up_to(nights: Sequence[NightInfo], side: Side) -> list[NightInfo]:
    """Return the last 30 nights (`NIGHTS`) of the side's branch and testbeds up to the side, oldest first.

    `nights` are newest first.
    """
    testbeds, branch = {run.testbed_id for run in side.runs}, side.branches[0]
    last = max(run.started_at for run in side.runs)
    matching = [
        night
        for night in nights
        if night.started_at <= last and any(run.branch == branch and run.testbed_id in testbeds for run in night.runs)
    ]
    return matching[:NIGHTS][::-1]


def recent(
    history: pd.DataFrame, nights: Sequence[NightInfo], side: Side, figures: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Return the figures of these nights on the side's testbeds, oldest first; NaN where a night has no such figure.

    A pass rate is 0 to 1. An average is a ratio to the newest night, over the groups of cells that both nights have. `history`
    is the branch's `db.queries.series.suite_history`. Raise `KeyError` where it does not have a figure.
    """
    testbeds = {run.testbed_id for run in side.runs}
    index_of = {run.run_id: at for at, night in enumerate(nights) for run in night.runs if run.testbed_id in testbeds}
    rows = history[history["run_id"].isin(index_of.keys())]
    of_night = rows["run_id"].map(index_of).to_numpy(dtype=np.int64)
    return {name: tuple(_of_nights(rows, of_night, len(nights), name)) for name in figures}


def _of_nights(rows: pd.DataFrame, of_night: np.ndarray, count: int, figure: str) -> list[float]:
    if figure == RATE:
        counts = (rows[name].to_numpy(dtype=float) for name in ("passed", "attempted"))
        return _over(*(np.bincount(of_night, part, count) for part in counts))
    groups = rows.groupby(_GROUP, sort=False).ngroup().to_numpy()
    shape = (int(groups.max(initial=-1)) + 1, count)
    cells, sums = np.zeros(shape), np.zeros(shape)
    weight, averages = (rows[name].to_numpy(dtype=float) for name in (f"n_{figure}", figure))
    is_mean = METRICS[figure].average == "mean"
    usable = (weight > 0) & (averages > 0)
    values = np.where(usable, averages if is_mean else np.log(np.where(usable, averages, 1.0)), 0.0)
    np.add.at(cells, (groups, of_night), np.where(usable, weight, 0.0))
    np.add.at(sums, (groups, of_night), np.where(usable, weight, 0.0) * values)
    newest = cells[:, -1:]
    weights = np.where((cells > 0) & (np.abs(cells - newest) <= _ALIKE * newest), newest, 0.0)
    level = np.divide(sums, cells, out=np.zeros(shape), where=cells > 0)
    then, now = ((weights * part).sum(axis=0) for part in (level, level[:, -1:]))
    if is_mean:
        return _over(then, now)
    total = weights.sum(axis=0)
    return [float(np.exp(value)) for value in _over(then - now, total)]


def _over(top: np.ndarray, below: np.ndarray) -> list[float]:
    """Return the ratios, NaN where the denominator is 0."""
    return [float(value) for value in np.divide(top, below, out=np.full(len(below), np.nan), where=below > 0)]
