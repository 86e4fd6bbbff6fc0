"""Slow drift: the change of a series since a pinned run that its change points do not explain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.history.branch_series import Direction, Point, SeriesTable, read_series
from analysis.history.timelines import direction_of, name_series
from analysis.stats.averages import Numbers
from analysis.stats.changepoints import SHORTEST, detect_rows
from analysis.stats.levels import LevelDrift, level_changes, level_drift
from analysis.stats.verdicts import LEVEL, false_discovery_rates
from collector.metrics import MIN_EFFECT
from db.connecting import Source, connected
from db.queries.cells import EVERYTHING, CellFilter, CellNames
from db.queries.sides import Side

#: The level at the pin is the level of the pinned commit and up to this many measured commits on either side.
AROUND = 5
#: Without a pin the level so many measured commits ago counts: a creep of 0.5 % a night is 10 % after 20.
BACK = 30
#: The newest level is the level of this many newest measured commits.
NEWEST = 10


@dataclass(frozen=True, slots=True)
class Drift:
    """A series that drifted away from its level at a pin.

    `levels` has the ratios: `ratio` is newest over pinned, `steps` the part that change points explain (1 for none) and
    `drift` the remaining part. `q` is the smallest false discovery rate at which the drift is reported.
    """

    repo: str
    branch: str
    testbed_id: str
    cell_id: str
    cell: str
    metric: str
    direction: Direction
    pinned: Point
    newest: Point
    levels: LevelDrift
    q: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        plain = ("repo", "branch", "testbed_id", "cell_id", "cell", "metric", "q", "direction")
        commits = {"pinned": self.pinned.commit, "newest": self.newest.commit}
        return {**{name: getattr(self, name) for name in plain}, **commits, **asdict(self.levels)}


@dataclass(frozen=True, slots=True)
class DriftSurvey:
    """The drifts, largest first. `series` is the number of series (per metric) that could be compared with the pin."""

    drifts: tuple[Drift, ...]
    series: int


def slow_drift(
    source: Source,
    pinned: Side | None = None,
    *,
    branch: str | None = None,
    filters: CellFilter = EVERYTHING,
) -> DriftSurvey:
    """Series whose newest level differs from the level at the pinned runs by more than the steps in between explain.

    The series are those of `branch`, else of the branches of the pinned runs, each compared with the pinned runs of its own
    testbed. Without `pinned` each is compared with its own level `BACK` measured commits ago. Neither level reaches across a
    change point, and both need 5 commits. With a pin on another branch (a release) there are no steps in between, and the
    whole difference counts as drift. A drift is reported if it is at least `MIN_EFFECT` with a false discovery rate of at
    most 5 % over all compared series of the metric.
    """
    keys = set(pinned.keys) if pinned else set()
    with connected(source) as conn:
        if pinned is None:
            names, tables = read_series(conn, tuple(MIN_EFFECT), branch=branch, filters=filters, window=2 * BACK)
            branches = {table.branch for table in tables}
        else:
            branches = {branch} if branch is not None else set(pinned.branches)
            tables = []
            for name in sorted(branches | set(pinned.branches)):
                names, of_branch = read_series(conn, tuple(MIN_EFFECT), branch=name, filters=filters)
                tables += of_branch
    drifts: list[Drift] = []
    series = 0
    for metric, least in MIN_EFFECT.items():
        compared = [
            drift
            for table in tables
            if table.branch in branches
            for base in (tables if pinned else [table])
            if (base.testbed_id, base.repo) == (table.testbed_id, table.repo)
            for drift in _compared(names, table, base, _pin(base, keys), metric, least)
        ]
        series += len(compared)
        rates = false_discovery_rates(np.array([drift.levels.p for drift in compared])).tolist()
        drifts += [
            replace(drift, q=q)
            for drift, q in zip(compared, rates, strict=True)
            if q <= LEVEL and abs(math.log(drift.levels.drift)) >= math.log1p(least)
        ]
    drifts.sort(key=lambda one: (-abs(math.log(one.levels.drift)), one.cell, one.metric, one.testbed_id))
    return DriftSurvey(tuple(drifts), series)


def _pin(table: SeriesTable, runs: set[int]) -> int | None:
    """Return the first pinned point, or without `runs` the one `BACK` points before the newest; None for none."""
    if not runs:
        return max(len(table.points) - 1 - BACK, 0) if table.points else None
    return next((at for at, point in enumerate(table.points) if any(run.key in runs for run in point.runs)), None)


def _compared(
    names: CellNames, table: SeriesTable, base: SeriesTable, pin: int | None, metric: str, least: float
) -> Iterator[Drift]:
    """Every series of `table` that can be compared with the point `pin` of `base`."""
    if pin is None:
        return
    values = table.values[metric]
    all_cuts = detect_rows(values, min_effect=least)
    if base is table:
        base_cuts, rows = all_cuts, np.arange(len(table.keys))
    else:
        base_cuts = detect_rows(base.values[metric], min_effect=least)
        rows = pd.Index(base.keys).get_indexer(pd.Index(table.keys))
    for row, base_row in enumerate(rows.tolist()):
        if base_row < 0:
            continue
        before = _near(base.values[metric][base_row], base_cuts[base_row], pin)
        now = _newest(values[row], all_cuts[row])
        if min(len(before), len(now)) < SHORTEST or (base is table and before[-1] >= now[0]):
            continue
        changes = level_changes(values[row], all_cuts[row]) if base is table and all_cuts[row] else []
        # A step that is not sure among all series may be a part of the creep.
        steps = [one for one in changes if one.at > pin and one.p <= LEVEL / len(values)]
        levels = level_drift(base.values[metric][base_row][before], values[row][now], steps)
        series = name_series(names, table, row)
        series.pop("cell_key")
        yield Drift(
            **series,
            metric=metric,
            direction=direction_of(metric, levels.drift),
            pinned=base.points[pin],
            newest=table.points[now[-1]],
            levels=levels,
        )


def _near(values: Numbers, cuts: Sequence[int], pin: int) -> list[int]:
    """Indices of measured values around a pin, none across a change point."""
    start = max((cut for cut in cuts if cut <= pin), default=0)
    stop = min((cut for cut in cuts if cut > pin), default=len(values))
    measured = np.flatnonzero(np.isfinite(values[start:stop])) + start
    before, after = measured[measured < pin][-AROUND:], measured[measured >= pin][: AROUND + 1]
    return [*before.tolist(), *after.tolist()]


def _newest(values: Numbers, cuts: Sequence[int]) -> list[int]:
    start = max(cuts, default=0)
    return [int(at) + start for at in np.flatnonzero(np.isfinite(values[start:]))[-NEWEST:]]
