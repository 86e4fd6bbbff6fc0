"""History judged: where the series of a branch went to new levels, by how much, and between which commits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.compare.adjustment import CONTROL
from analysis.compare.evidence import differences
from analysis.compare.results import EnvironmentDifference
from analysis.history.changes import Certainty, Change, Direction, Levels, Span
from analysis.history.first import first_changes
from analysis.history.series import Point, SeriesTable, read_series
from analysis.history.status import status_changes
from analysis.stats.changepoints import SHORTEST, detect_rows
from analysis.stats.levels import LevelChange, level_changes, pending_change, pending_shifts
from analysis.stats.steps import EDGE
from analysis.stats.verdicts import LEVEL, false_discovery_rates
from collector.metrics import METRICS, MIN_EFFECT
from db.connecting import Source, connected
from db.queries.cell_names import CellNames
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.series import Surroundings, environments_of, programs_of, surroundings

#: Newest commits of every branch and testbed that are judged anew for one more night: what is found there does not hang on
#: what lies before, but for the first of them (`detect` needs 5 to 20 points on each side).
INCREMENT = 120
#: Keys of a fingerprint that are the code itself, and no change of its surroundings.
_CODE = ("torch", "torch_git")


@dataclass(frozen=True, slots=True)
class History:
    """The changes found, oldest onset first, and how much was there to judge.

    `series` counts those of a metric with points enough for a change point (10), `first` those in a line with fewer whose
    noise is known. `cells` holds the database's numbers of the cells whose status is known twice: of others nothing can be said.
    """

    changes: tuple[Change, ...]
    series: Mapping[str, int]
    cells: frozenset[int]
    first: Mapping[str, int] = field(default_factory=dict)


def judge_history(
    source: Source,
    *,
    branch: str | None = None,
    filters: CellFilter = EVERYTHING,
    smallest: Mapping[str, float] = MIN_EFFECT,
    window: int | None = None,
) -> History:
    """Every change of every series: a cell on a branch and testbed, by each metric of `smallest` and by its status.

    Points are the commits in the order of the repository; what was not measured or failed is a gap. A metric's change is one
    of `changepoints.detect` or `pending`, or in a line with fewer than 10 points of `analysis.history.first`. It is
    `smallest[metric]` (relative) at least, with a false discovery rate of at most 5 % over all series of that metric which
    were judged. `window` looks at the newest so many commits of each branch and testbed only (`INCREMENT` for one more
    night); None at all of them.

    Raises:
        KeyError: a metric that does not exist.
    """
    with connected(source) as conn:
        metrics = dict.fromkeys([*smallest, *(CONTROL[metric] for metric in smallest if metric in CONTROL)])
        names, tables = read_series(conn, tuple(metrics), branch=branch, filters=filters, window=window)
        found: list[Change] = []
        first = [first_changes(conn, names, table, smallest) for table in tables]
        series = {metric: sum(int(np.sum(_enough(table, metric))) for table in tables) for metric in smallest}
        for metric, least in smallest.items():
            found += _of_metric(names, tables, [one.get(metric, {}) for one in first], metric, least, series[metric])
        for table in tables:
            found += _of_statuses(names, table)
        found = _with_surroundings(conn, found)
    cells = {key for table in tables for key in table.keys[np.isfinite(table.passed).sum(axis=1) >= 2].tolist()}
    young = {metric: sum(len(one.get(metric, {})) for one in first) for metric in smallest}
    return History(tuple(sorted(found, key=_order)), series, frozenset(cells), young)


def _order(change: Change) -> tuple[str, str, int, str, str, str]:
    return (change.repo, change.branch, change.span.onset.place, change.cell, change.testbed_id, change.metric)


def _enough(table: SeriesTable, metric: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    enough: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isfinite(table.values[metric]).sum(axis=1) >= 2 * SHORTEST
    return enough


@dataclass(frozen=True, slots=True)
class _Found:
    """A change of the series in a row of a table; its two levels lie within `start` and `stop`."""

    table: SeriesTable
    row: int
    change: LevelChange
    certainty: Certainty
    start: int
    stop: int

    def control(self, metric: str) -> float | None:
        """How many times as much the eager time became over the same boundary, by the nearest 20 points to either side."""
        if metric not in CONTROL:
            return None
        values = self.table.values[CONTROL[metric]][self.row]
        before, after = values[self.start : self.change.at], values[self.change.at : self.stop]
        before, after = before[np.isfinite(before)][-EDGE:], after[np.isfinite(after)][:EDGE]
        if not before.size or not after.size:
            return None
        return float(np.exp(np.median(np.log(after)) - np.median(np.log(before))))


def _of_metric(
    names: CellNames,
    tables: Sequence[SeriesTable],
    first: Sequence[Mapping[int, LevelChange]],
    metric: str,
    least: float,
    series: int,
) -> list[Change]:
    """The changes of one metric that are large enough and stand the control of false discoveries. `first` has a change of each
    row that is judged by `analysis.history.first`, table by table; `series` are the others that are judged."""
    found: list[_Found] = []
    changed = 0
    for table, of_first in zip(tables, first, strict=True):
        values = table.values[metric]
        cuts = detect_rows(values, min_effect=least)
        tails = pending_shifts(values, cuts, min_effect=least)
        for row, (of_row, tail) in enumerate(zip(cuts, tails, strict=True)):
            if row in of_first:
                found.append(_Found(table, row, of_first[row], Certainty.PENDING, 0, values.shape[1]))
                continue
            changed += bool(of_row) or tail is not None
            bounds = [0, *of_row, values.shape[1]]
            for at, one in enumerate(level_changes(values[row], of_row) if of_row else ()):
                found.append(_Found(table, row, one, Certainty.ESTABLISHED, bounds[at], bounds[at + 2]))
            if tail is not None:
                one = pending_change(values[row], tail, of_row)
                found.append(_Found(table, row, one, Certainty.PENDING, *bounds[-2:]))
    # A series without a change is a hypothesis that was tested, too.
    p = np.array([one.change.p for one in found] + [1.0] * max(series - changed, 0))
    rates = false_discovery_rates(p)[: len(found)].tolist()
    return [
        _metric_change(names, one, metric, q)
        for one, q in zip(found, rates, strict=True)
        if q <= LEVEL and abs(math.log(one.change.ratio)) >= math.log1p(least)
    ]


def _metric_change(names: CellNames, found: _Found, metric: str, q: float) -> Change:
    table, row, one = found.table, found.row, found.change
    measured = np.flatnonzero(np.isfinite(table.values[metric][row]))
    before = {at: int(measured[np.searchsorted(measured, at) - 1]) for at in (one.at, one.earliest)}
    levels = Levels(one.before, one.after, one.now, one.ratio, one.low, one.high, one.p, q)
    return Change(
        **name_series(names, table, row),
        metric=metric,
        direction=direction_of(metric, one.ratio),
        certainty=found.certainty,
        span=_span(table, before[one.at], one.at),
        possible=_span(table, before[one.earliest], one.latest),
        is_over=one.is_over,
        levels=levels,
        control=found.control(metric),
    )


def direction_of(metric: str, ratio: float) -> Direction:
    """Which way a metric went whose new level is `ratio` times the old one."""
    better = METRICS[metric].better
    if better == "neither":
        return Direction.NEITHER
    return Direction.BETTER if (ratio < 1) == (better == "lower") else Direction.WORSE


def _of_statuses(names: CellNames, table: SeriesTable) -> list[Change]:
    rows = np.flatnonzero((table.passed < 1).any(axis=1) & (table.passed > 0).any(axis=1))
    return [
        Change(
            **name_series(names, table, row),
            metric="",
            direction=Direction.WORSE if one.broke else Direction.BETTER,
            certainty=Certainty.PENDING if one.is_pending else Certainty.ESTABLISHED,
            span=_span(table, one.before, one.at),
            possible=_span(table, one.earliest_before, one.at),
            is_over=at < len(found) - 1,
        )
        for row in rows.tolist()
        for found in [status_changes(table.passed[row])]
        for at, one in enumerate(found)
    ]


def name_series(names: CellNames, table: SeriesTable, row: int) -> dict[str, Any]:
    """What names the series of a row: repo, branch, testbed_id, cell_id, cell and cell_key."""
    key = int(table.keys[row])
    place = {name: getattr(table, name) for name in ("repo", "branch", "testbed_id")}
    return {**place, "cell_id": names.at[key, "cell_id"], "cell": names.at[key, "cell"], "cell_key": key}


def _span(table: SeriesTable, base: int, onset: int) -> Span:
    return Span(table.points[base], table.points[onset])


def _with_surroundings(source: Source, changes: Sequence[Change]) -> list[Change]:
    """The changes with what else differs between their sides, and the statuses of those that are changes of status."""
    wanted = [(run.key, change.cell_key) for change in changes for point in _ends(change) for run in point.runs]
    known = surroundings(source, wanted)
    environments = _Differences(environments_of(source, (one.environment for one in known.values())), _CODE)
    programs = _Differences(programs_of(source, (one.program for one in known.values())))
    found = []
    for change in changes:
        base, onset = (_of_point(known, change, point) for point in _ends(change))
        if base is not None and onset is not None:
            change = replace(
                change,
                statuses=None if change.metric else (base.status, onset.status),
                environment=environments.between(base.environment, onset.environment),
                program=programs.between(base.program, onset.program),
            )
        found.append(change)
    return found


def _ends(change: Change) -> tuple[Point, Point]:
    return change.span.base, change.span.onset


def _of_point(known: Mapping[tuple[int, int], Surroundings], change: Change, point: Point) -> Surroundings | None:
    """Of the point's first run that measured the cell; all of its runs had one environment."""
    of_runs = (known.get((run.key, change.cell_key)) for run in point.runs)
    return next((one for one in of_runs if one is not None), None)


class _Differences:
    """What differs between two records of a kind, each pair looked at once: many cells share a boundary."""

    def __init__(self, records: Mapping[int, Mapping[str, Any]], left_out: Sequence[str] = ()) -> None:
        self._records, self._left_out = records, left_out
        self._known: dict[tuple[int | None, int | None], tuple[EnvironmentDifference, ...]] = {}

    def between(self, base: int | None, new: int | None) -> tuple[EnvironmentDifference, ...]:
        """Key by key, by the database's numbers; nothing where a record is lost."""
        if base == new:
            return ()
        if (base, new) not in self._known:
            sides = [{} if number is None else self._records.get(number, {}) for number in (base, new)]
            found = differences(*sides)
            kept = tuple(one for one in found if one.key.partition(".")[0] not in self._left_out)
            self._known[base, new] = kept
        return self._known[base, new]
