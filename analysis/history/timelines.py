"""Judge history: where the series of a branch went to new levels, by how much, and between which commits.

Slow drift is the change of a series since a pinned run that its change points do not explain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.adjustment import CONTROL, WAITS_FOR_HOST, CellPairs, PairedCells
from analysis.compare.cell_comparison import DEVICE, JudgedMetric, direction
from analysis.compare.cell_verdicts import READ, judge_pairs
from analysis.compare.noise import RepeatRows
from analysis.compare.side_differences import EnvironmentDifference, differences
from analysis.history.branch_series import Certainty, Change, Direction, Point, SeriesTable, Span, read_series
from analysis.stats.averages import Numbers
from analysis.stats.changepoints import EDGE, SHORTEST, detect_rows
from analysis.stats.levels import LevelChange, LevelDrift, NewLevel, is_nearer, level_changes, level_drift, new_levels
from analysis.stats.verdicts import LEVEL, false_discovery_rates
from collector.metrics import METRICS, MIN_EFFECT
from db.connecting import Source, connected
from db.nights import RunInfo
from db.queries.cells import EVERYTHING, CellFilter, CellNames
from db.queries.series import Surroundings, environments_of, programs_of, surroundings
from db.queries.sides import Side
from db.stored_values import from_epoch


def first_changes(source: Source, names: CellNames, table: SeriesTable) -> dict[str, dict[int, LevelChange]]:
    """Return `judge_first` of a table with 2 to 9 points, by the noise that the store knows; empty for any other table."""
    if not 2 <= len(table.points) < 2 * SHORTEST:
        return {}
    rows = RepeatRows.behind(source, [_side(table.points)], READ, with_untimed=False)
    return judge_first(rows, names.loc[table.keys, "cell_id"].tolist(), table, MIN_EFFECT)


def judge_first(
    rows: RepeatRows, cell_ids: Sequence[str], table: SeriesTable, min_effects: Mapping[str, float]
) -> dict[str, dict[int, LevelChange]]:
    """Return the likeliest change of each series, by metric and row. `cell_ids` are the ids of the table's rows.

    The points before a place are one side, the points from it on are the other side (`judge_pairs`). The place with the smallest
    p counts, and p is multiplied by the number of places (Bonferroni). p is 1 where the change is smaller than `min_effects`.
    `ratio` is as measured; p is for the part that the eager runs do not explain. A series whose noise is not known is left out.
    """
    cells = CellPairs.of_ids(cell_ids)
    judged = []
    for at in range(1, len(table.points)):
        pairs = PairedCells(rows, _side(table.points[:at]), _side(table.points[at:]), cells)
        judged.append(judge_pairs(pairs, min_effects).metrics)
    return {
        metric: _likeliest(table.values[metric], least, [metrics[metric] for metrics in judged])
        for metric, least in min_effects.items()
    }


def _likeliest(table: Numbers, least: float, judged: Sequence[JudgedMetric]) -> dict[int, LevelChange]:
    """Return by row of the table the change at the place with the smallest p; entry i of `judged` belongs to place i + 1."""
    adjusted, low, high, explained, p = (
        np.array([getattr(of_place, name) for of_place in judged])
        for name in ("adjusted", "low", "high", "explained", "p")
    )
    tried = np.isfinite(p).sum(axis=0)
    changes = {}
    for row in np.flatnonzero(tried).tolist():
        at = int(np.nanargmin(p[:, row]))
        values = table[row]
        measured = np.flatnonzero(np.isfinite(values))
        onset = int(measured[np.searchsorted(measured, at + 1)])
        before, after = (float(np.exp(np.nanmean(np.log(part)))) for part in (values[:onset], values[onset:]))
        ratio, lowest, highest = (
            float((1 + part[at, row]) * (1 + explained[at, row])) for part in (adjusted, low, high)
        )
        # The eager runs may explain more than the whole change.
        matters = abs(np.log1p(adjusted[at, row])) >= np.log1p(least) and (ratio > 1) == (adjusted[at, row] > 0)
        changes[row] = LevelChange(
            *(onset, onset, onset, before, after, after, ratio, lowest, highest),
            p=min(float(p[at, row] * tried[row]), 1.0) if matters else 1.0,
            is_over=before != after and is_nearer(float(values[measured[-1]]), before, after),
        )
    return changes


def _side(points: tuple[Point, ...]) -> Side:
    """Return the runs of points as a side of a comparison, without fields that judging does not read."""
    runs = (
        RunInfo(
            *(run.key, run.run_id, "", run.branch, run.commit, run.repo, run.testbed_id),
            testbed={},
            label="",
            started_at=from_epoch(run.started_at),
            finished_at=None,
        )
        for point in points
        for run in point.runs
    )
    return Side("", "commit", tuple(runs))


#: Number of newest commits of every branch and testbed that are judged again after one more night. Their changes do not depend on
#: older commits, except for the first few (`detect` needs 5 to 20 points on each side).
INCREMENT = 120
#: Keys of a fingerprint that are the code itself, and no difference of the environment.
_CODE = ("torch", "torch_git")
#: Fewest turns of a flaky cell, and the number of its last points that are looked at, as in `analysis.compare.noise`.
TURNS, LOOK_BACK = 3, 30


@dataclass(frozen=True, slots=True)
class History:
    """The changes of all series, oldest onset first, and the numbers of series that were judged.

    `series` counts, by metric, the series with enough points for a change point (10), `first` the series with fewer points whose
    noise is known. `cells` has the database's numbers of the cells whose status is known at two points at least: other cells
    cannot be judged.
    """

    changes: tuple[Change, ...]
    series: Mapping[str, int]
    cells: frozenset[int]
    first: Mapping[str, int] = field(default_factory=dict)


def judge_history(
    source: Source,
    *,
    branch: str | None = None,
    window: int | None = None,
) -> History:
    """Return every change of every series: a cell on a branch and testbed, by each metric of `MIN_EFFECT` and by its status.

    Points are the commits in the order of the repository; a commit where the cell failed or was not measured is a gap. Changes
    of metrics come from `analysis.stats.levels.new_levels`; in a table with fewer than 10 points they are those of `judge_first`.
    `window` is the number of newest commits of each branch and testbed to look at (`INCREMENT` for one more night); None for
    all.
    """
    with connected(source) as conn:
        metrics = dict.fromkeys([*MIN_EFFECT, *(CONTROL[metric] for metric in MIN_EFFECT if metric in CONTROL)])
        names, tables = read_series(conn, tuple(metrics), branch=branch, window=window)
        changes: list[Change] = []
        first = [first_changes(conn, names, table) for table in tables]
        known = {metric: [np.isfinite(table.values[metric]).sum(axis=1) for table in tables] for metric in MIN_EFFECT}
        series = {metric: int(sum(np.sum(count >= 2 * SHORTEST) for count in of)) for metric, of in known.items()}
        for metric, min_effect in MIN_EFFECT.items():
            judged_first = [one.get(metric, {}) for one in first]
            levels = new_levels([table.values[metric] for table in tables], min_effect, judged_first)
            changes += [
                _metric_change(names, tables[level.table], level, metric)
                for level in levels
                if not _is_of_host(tables[level.table], level, metric)
            ]
        for table in tables:
            changes += _of_statuses(names, table)
        changes = _with_environment_diff(conn, changes)
    cells = {key for table in tables for key in table.keys[np.isfinite(table.passed).sum(axis=1) >= 2].tolist()}
    young = {metric: sum(len(one.get(metric, {})) for one in first) for metric in MIN_EFFECT}
    return History(tuple(sorted(changes, key=_order)), series, frozenset(cells), young)


def _order(change: Change) -> tuple[str, str, int, str, str, str]:
    return (change.repo, change.branch, change.span.onset.index, change.cell, change.testbed_id, change.metric)


def _metric_change(names: CellNames, table: SeriesTable, level: NewLevel, metric: str) -> Change:
    row, change = level.row, level.change
    measured = np.flatnonzero(np.isfinite(table.values[metric][row]))
    before = {at: int(measured[np.searchsorted(measured, at) - 1]) for at in (change.at, change.earliest)}
    return Change(
        **name_series(names, table, row),
        metric=metric,
        direction=direction_of(metric, change.ratio),
        certainty=Certainty.PENDING if level.is_pending else Certainty.ESTABLISHED,
        span=_span(table, before[change.at], change.at),
        possible=_span(table, before[change.earliest], change.latest),
        is_over=change.is_over,
        levels=change,
        control=_control(table, level, metric),
    )


def _is_of_host(table: SeriesTable, level: NewLevel, metric: str) -> bool:
    """Return whether a pending shift of latency is the host's: the eager latency moved along, and the device time did not."""
    control = _control(table, level, metric)
    if not level.is_pending or metric != WAITS_FOR_HOST or control is None:
        return False
    least = math.log1p(MIN_EFFECT[metric])
    device = _moved(table, level, DEVICE)
    moved_along = abs(math.log(control)) >= least and abs(math.log(level.change.ratio / control)) < least
    return moved_along and (device is None or abs(math.log(device)) < least)


def _control(table: SeriesTable, level: NewLevel, metric: str) -> float | None:
    """Return new over old eager time at the boundary of a new level; None for a metric without a control."""
    return _moved(table, level, CONTROL[metric]) if metric in CONTROL else None


def _moved(table: SeriesTable, level: NewLevel, metric: str) -> float | None:
    """Return new over old value of a metric at the boundary of a new level, by the nearest 20 points on each side, or None."""
    values = table.values[metric][level.row]
    before, after = values[level.start : level.change.at], values[level.change.at : level.stop]
    before, after = before[np.isfinite(before)][-EDGE:], after[np.isfinite(after)][:EDGE]
    if not before.size or not after.size:
        return None
    return float(np.exp(np.median(np.log(after)) - np.median(np.log(before))))


def direction_of(metric: str, ratio: float) -> Direction:
    """Return the direction of a metric whose new level is `ratio` times the old one."""
    if METRICS[metric].better == "neither":
        return Direction.NEITHER
    return Direction.BETTER if direction(metric, 1.0, ratio) == "better" else Direction.WORSE


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
            is_over=at < len(of_row) - 1,
        )
        for row in rows.tolist()
        for of_row in [status_changes(table.passed[row])]
        for at, one in enumerate(of_row)
    ]


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A change of status, as indices of points.

    `before` is the last point before the change, `at` the first after it, and `earliest_before` the last point before the status
    could first have changed: a flaky cell may fail once and pass again before it fails for good.
    """

    before: int
    at: int
    earliest_before: int
    broke: bool
    is_pending: bool


def status_changes(passed: Numbers) -> list[StatusChange]:
    """Return the changes of a cell from passing to failing or back, oldest first.

    `passed` is 1, 0, or NaN where nothing is known. Points at which the cell both passed and failed (between 0 and 1) count only
    for whether it is flaky. A single point that differs from both its neighbours is no change. A change that only the newest
    point shows is pending, unless the cell fails there after passing and is not flaky (3 turns in its last 30 points).
    """
    known = np.flatnonzero((passed == 0) | (passed == 1))
    outcomes = passed[known]
    changes = []
    stretches = _stretches(outcomes)
    for (_, end, _), (start, stop, passes) in pairwise(stretches):
        alone = stop - start == 1
        is_flaky = _turns(passed[: known[start]]) >= TURNS
        before, at, earliest = int(known[start - 1]), int(known[start]), int(known[end - 1])
        changes.append(StatusChange(before, at, earliest, not passes, alone and (bool(passes) or is_flaky)))
    return changes


def _stretches(outcomes: Numbers) -> list[tuple[int, int, bool]]:
    """Return the stretches of one outcome (start, stop, passes) with at least two points.

    The newest stretch may have one point, and so may the first if it passes: a single failure before all other points does not
    show the usual status.
    """
    raw, start = [], 0
    for passes, group in groupby(outcomes.tolist()):
        stop = start + sum(1 for _ in group)
        raw.append((start, stop, bool(passes)))
        start = stop
    kept = [
        (start, stop, passes)
        for at, (start, stop, passes) in enumerate(raw)
        if stop - start > 1 or at == len(raw) - 1 or (at == 0 and passes)
    ]
    joined: list[tuple[int, int, bool]] = []
    for start, stop, passes in kept:
        if joined and joined[-1][2] == passes:
            joined[-1] = (joined[-1][0], stop, passes)
        else:
            joined.append((start, stop, passes))
    return joined


def _turns(passed: Numbers) -> int:
    """Return how often the outcome changed over the last 30 known points; a point that both passed and failed is two turns."""
    known = passed[np.isfinite(passed)][-LOOK_BACK:]
    mixed = (known > 0) & (known < 1)
    sure = known[~mixed]
    return int(np.sum(sure[1:] != sure[:-1]) + 2 * np.sum(mixed))


def name_series(names: CellNames, table: SeriesTable, row: int) -> dict[str, Any]:
    """Return the names of the series of a row: repo, branch, testbed_id, cell_id, cell and cell_key."""
    key = int(table.keys[row])
    line = {name: getattr(table, name) for name in ("repo", "branch", "testbed_id")}
    return {**line, "cell_id": names.at[key, "cell_id"], "cell": names.at[key, "cell"], "cell_key": key}


def _span(table: SeriesTable, base: int, onset: int) -> Span:
    return Span(table.points[base], table.points[onset])


def _with_environment_diff(source: Source, changes: Sequence[Change]) -> list[Change]:
    """Return the changes with differences of environment and program between their sides, and with statuses if these changed."""
    wanted = [(run.key, change.cell_key) for change in changes for point in _ends(change) for run in point.runs]
    known = surroundings(source, wanted)
    environments = environments_of(source, (one.environment for one in known.values()))
    programs = programs_of(source, (one.program for one in known.values()))

    # Many cells share a boundary, and a record may be lost.
    @cache
    def environment_diff(base: int | None, new: int | None) -> tuple[EnvironmentDifference, ...]:
        changed = differences(environments.get(base or 0, {}), environments.get(new or 0, {}))
        return tuple(one for one in changed if one.key.partition(".")[0] not in _CODE)

    @cache
    def program_diff(base: int | None, new: int | None) -> tuple[EnvironmentDifference, ...]:
        return differences(programs.get(base or 0, {}), programs.get(new or 0, {}))

    completed = []
    for change in changes:
        base, onset = (_of_point(known, change, point) for point in _ends(change))
        if base is not None and onset is not None:
            change = replace(
                change,
                statuses=None if change.metric else (base.status, onset.status),
                environment=environment_diff(base.environment, onset.environment),
                program=program_diff(base.program, onset.program),
            )
        completed.append(change)
    return completed


def _ends(change: Change) -> tuple[Point, Point]:
    return change.span.base, change.span.onset


def _of_point(known: Mapping[tuple[int, int], Surroundings], change: Change, point: Point) -> Surroundings | None:
    """Return the surroundings in the point's first run that measured the cell; all of its runs had one environment."""
    of_runs = (known.get((run.key, change.cell_key)) for run in point.runs)
    return next((one for one in of_runs if one is not None), None)


#: The level at the pin is the level of the pinned commit and up to this many measured commits on either side.
AROUND = 5
#: Without a pin the level this many measured commits ago counts: a creep of 0.5 % a night is 10 % after 20.
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
        """Return a JSON object with stable keys."""
        plain = ("repo", "branch", "testbed_id", "cell_id", "cell", "metric", "q", "direction")
        commits = {"pinned": self.pinned.commit, "newest": self.newest.commit}
        return {**{name: getattr(self, name) for name in plain}, **commits, **asdict(self.levels)}


@dataclass(frozen=True, slots=True)
class DriftSurvey:
    """The drifts, largest first. `series` is the number of series, summed over metrics, that could be compared with the pin."""

    drifts: tuple[Drift, ...]
    series: int


def slow_drift(
    source: Source,
    pinned: Side | None = None,
    *,
    branch: str | None = None,
    filters: CellFilter = EVERYTHING,
) -> DriftSurvey:
    """Return the series whose newest level differs from the level at the pinned runs by more than the steps in between explain.

    The series of `branch`, else of the branches of the pinned runs, are compared with the pinned runs of their own testbed.
    Without `pinned` each is compared with its own level `BACK` measured commits ago. Neither level reaches across a change
    point, and both need at least 5 commits. With a pin on another branch (a release) there are no steps in between, and the
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
    """Yield the drift of every series of `table` that can be compared with the point `pin` of `base`."""
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
        # A step that is not significant among all series may be a part of the creep, and is not counted as a step.
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
    """Return the indices of measured values around a pin, none of them across a change point."""
    start = max((cut for cut in cuts if cut <= pin), default=0)
    stop = min((cut for cut in cuts if cut > pin), default=len(values))
    measured = np.flatnonzero(np.isfinite(values[start:stop])) + start
    before, after = measured[measured < pin][-AROUND:], measured[measured >= pin][: AROUND + 1]
    return [*before.tolist(), *after.tolist()]


def _newest(values: Numbers, cuts: Sequence[int]) -> list[int]:
    start = max(cuts, default=0)
    return [int(at) + start for at in np.flatnonzero(np.isfinite(values[start:]))[-NEWEST:]]
