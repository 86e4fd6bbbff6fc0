"""Group changes into alerts. An alert has one commit range and all cells that changed there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from analysis.compare.adjustment import CAP, CONTROL
from analysis.compare.cell_comparison import DEVICE, WALL
from analysis.compare.kernel_groups import KernelGroup, KernelShare, compared_kernels, explained
from analysis.compare.side_differences import (
    REST,
    CodeChanges,
    EnvironmentDifference,
    ReasonDifference,
    changes,
    count_differences,
    reason_differences,
)
from analysis.history.branch_series import Certainty, Change, Direction, Point, Span
from analysis.history.timelines import History, judge_history
from analysis.stats.run_noise import FEWEST_FOR_DRIFT, common_drift
from collector.metrics import MIN_EFFECT
from collector.vocabulary import short_hash
from db.commits.commit_history import CommitEntry, commits_between, find_commit
from db.connecting import Source, connected
from db.queries.cells import EVERYTHING, CellFilter, cell_names
from db.queries.details import code_of, evidence, measurement, with_kernels
from db.store_errors import CommitError

#: The number of cells that a short text names.
WORST = 5


@dataclass(frozen=True, slots=True)
class BlameRange:
    """The commits after the last one measured before a change, up to and with the first one measured after, oldest first.

    `distance` is their number in the whole history, None where no import has their positions. `commits` then has only the first
    commit measured after the change, if the database knows it. It also has fewer commits where an import left some out.
    """

    base: str
    onset: str
    distance: int | None
    commits: tuple[CommitEntry, ...]

    @property
    def is_whole(self) -> bool:
        """Return whether every suspect is named."""
        return self.distance == len(self.commits)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {
            "base": self.base,
            "onset": self.onset,
            "distance": self.distance,
            "commits": [commit_json(entry) for entry in self.commits],
        }


def blame_range(source: Source, repo: str, span: Span) -> BlameRange:
    """Return the suspects of a change, in the order of the repository, with titles, pull requests, reverts and relands if known.

    There are no suspects where both sides measured one commit: then something else changed.
    """
    base, onset = span.base, span.onset
    if span.is_one_commit:
        return BlameRange(base.commit, onset.commit, 0, ())
    if base.position is None or onset.position is None:
        with suppress(CommitError):
            return BlameRange(base.commit, onset.commit, None, (find_commit(source, onset.commit, repo),))
        return BlameRange(base.commit, onset.commit, None, ())
    commits = commits_between(source, repo, base.position, onset.position)
    return BlameRange(base.commit, onset.commit, onset.position - base.position, commits)


def commit_json(entry: CommitEntry) -> dict[str, Any]:
    """Return a commit as a JSON object with stable keys."""
    links = ("reverts", "reverted_by", "relands", "relanded_by")
    return {
        **{name: getattr(entry, name) for name in ("sha", "title", "pr_number", "position")},
        "committed_at": entry.committed_at.isoformat() if entry.committed_at else None,
        **{name: list(getattr(entry, name)) for name in links},
    }


@dataclass(frozen=True, slots=True)
class Alert:
    """Changes that a common range of commits can explain, worst first.

    `span` is the range that all changes share: the last point before and the first point after. `blame` has the commits of
    that range. `also_possible` has commits that only some of the changes allow. `alert_id` is a hash of the range. It changes
    when a later run of a commit in between narrows the range.
    """

    alert_id: str
    repo: str
    branch: str
    span: Span
    blame: BlameRange
    also_possible: tuple[CommitEntry, ...]
    changes: tuple[Change, ...]

    @property
    def certainty(self) -> Certainty:
        """`established` if at least one change is established, else `pending`."""
        established = any(change.certainty is Certainty.ESTABLISHED for change in self.changes)
        return Certainty.ESTABLISHED if established else Certainty.PENDING

    @property
    def direction(self) -> Direction | None:
        """The direction of all changes; None where they differ."""
        directions = {change.direction for change in self.changes}
        return directions.pop() if len(directions) == 1 else None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cell_ids, each once, worst first."""
        return tuple(dict.fromkeys(change.cell_id for change in self.changes))

    @property
    def is_over(self) -> bool:
        """Return whether every cell went back to its level or status before the change."""
        return all(change.is_over for change in self.changes)

    @property
    def environment(self) -> tuple[EnvironmentDifference, ...]:
        """Differences of environment and program at the boundaries of the changes, each key once."""
        by_key = {one.key: one for change in self.changes for one in (*change.environment, *change.program)}
        return tuple(by_key[key] for key in sorted(by_key))

    @property
    def environment_changed(self) -> bool:
        """Return whether the environment changed at the boundary of any change, so that it may be the cause, not a commit."""
        return any(change.environment_changed for change in self.changes)

    @property
    def median_worsening(self) -> float | None:
        """The median factor by which metrics got worse; below 1 is better. None if only statuses changed."""
        logs = [math.log(change.worsening) for change in self.changes if change.worsening is not None]
        return math.exp(float(np.median(logs))) if logs else None

    @property
    def common_drift(self) -> dict[tuple[str, str], float]:
        """The median ratio of the eager times of the changed cells (after over before), by testbed and metric.

        Only testbeds and metrics with at least 20 changed cells have a common drift. A commit of Inductor does not change eager
        times, so a common change of them comes from the machine.
        """
        logs: dict[tuple[str, str], list[float]] = {}
        for change in self.changes:
            if change.control is not None:
                logs.setdefault((change.testbed_id, change.metric), []).append(math.log(change.control))
        return {key: math.exp(common_drift(values)) for key, values in logs.items() if len(values) >= FEWEST_FOR_DRIFT}

    def of_machine(self) -> tuple[Change, ...]:
        """Return the changes below the minimum effect after correction for the common drift of the machine.

        A drift larger than `MOST_DRIFT` is not the machine's and explains nothing. It does not explain a cell's latency either if
        it does not explain the change of the cell's device time.
        """
        drifts = self.common_drift
        explained = [
            change
            for change in self.changes
            if (drift := drifts.get((change.testbed_id, change.metric))) is not None
            and change.levels is not None
            and abs(math.log(drift)) <= math.log1p(MOST_DRIFT.get(change.metric, math.inf))
            and abs(math.log(change.levels.ratio / drift)) < math.log1p(MIN_EFFECT[change.metric])
        ]
        own = {
            (change.testbed_id, change.cell_id)
            for change in self.changes
            if change.metric == DEVICE and change not in explained
        }
        return tuple(one for one in explained if one.metric != WALL or (one.testbed_id, one.cell_id) not in own)

    def counts(self) -> dict[str, int]:
        """Return the number of changes of each metric, and of `broke` and `fixed`, the largest number first."""
        words = Counter(change.metric or _STATUS_WORDS[change.direction] for change in self.changes)
        return dict(sorted(words.items(), key=lambda one: (-one[1], one[0])))

    def worst(self, count: int = WORST) -> tuple[Change, ...]:
        """Return the first `count` changes, worst first. Changes of status come before changes of metrics."""
        return self.changes[:count]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        direction = self.direction
        return {
            "alert_id": self.alert_id,
            "repo": self.repo,
            "branch": self.branch,
            "certainty": self.certainty.value,
            "direction": direction.value if direction else "mixed",
            "is_over": self.is_over,
            "cells": len(self.cells),
            "counts": self.counts(),
            "median_worsening": self.median_worsening,
            "common_drift": [
                {"testbed_id": testbed, "metric": metric, "ratio": ratio}
                for (testbed, metric), ratio in self.common_drift.items()
            ],
            "environment_changed": self.environment_changed,
            "environment": [one.to_json() for one in self.environment],
            "span": self.span.to_json(),
            "blame": self.blame.to_json(),
            "also_possible": [commit_json(entry) for entry in self.also_possible],
            "changes": [change.to_json() for change in self.changes],
        }


#: The largest common move of eager times, relative, that is taken for the machine's: for device time as in a comparison, for
#: latency the lasting cost of a slower host. A larger move of most cells opens records, whatever its cause.
MOST_DRIFT = {DEVICE: CAP, WALL: 0.08}
_index = attrgetter("index")
_STATUS_WORDS = {Direction.WORSE: "broke", Direction.BETTER: "fixed"}


@dataclass(slots=True)
class Group:
    """Changes whose ranges overlap. All share the commits after `base` up to `onset`. `first` to `last` spans all ranges."""

    base: Point
    onset: Point
    first: Point
    last: Point
    changes: list[Change] = field(default_factory=list)

    def overlaps(self, span: Span) -> bool:
        """Return whether a commit lies in both ranges. A range within one commit overlaps only an equal range."""
        if span.is_one_commit or self.base.index == self.onset.index:
            return (span.base.index, span.onset.index) == (self.base.index, self.onset.index)
        return span.base.index < self.onset.index and self.base.index < span.onset.index

    def distance(self, span: Span) -> int:
        """Return how far the most likely range of a change lies outside the shared range, in measured commits."""
        return max(0, self.base.index - span.base.index, span.onset.index - self.onset.index)

    def take(self, change: Change) -> None:
        """Add a change whose range overlaps, and narrow `base` and `onset` to the commits that all ranges share."""
        base, onset = change.possible.base, change.possible.onset
        self.changes.append(change)
        self.base, self.onset = max(self.base, base, key=_index), min(self.onset, onset, key=_index)
        self.first, self.last = min(self.first, base, key=_index), max(self.last, onset, key=_index)


def group_changes(changes: Iterable[Change]) -> list[Group]:
    """Group the changes of one repository and branch. The changes of a group share at least one commit.

    Narrow ranges are grouped first. A wider range joins the overlapping group that is nearest to its most likely range, of
    equally near groups the one with the most changes. Without an overlapping group it starts a new one. The order of `changes`
    does not matter.
    """
    groups: list[Group] = []
    for change in sorted(changes, key=_by_width):
        span = change.possible
        fitting = [group for group in groups if group.overlaps(span)]
        if fitting:
            nearest = min(fitting, key=lambda one: (one.distance(change.span), -len(one.changes), one.onset.index))
        else:
            nearest = Group(span.base, span.onset, span.base, span.onset)
            groups.append(nearest)
        nearest.take(change)
    return sorted(groups, key=lambda one: (one.onset.index, one.base.index))


def _by_width(change: Change) -> tuple[int, int, int, int, str, str, str]:
    span, best = change.possible, change.span
    width = span.onset.index - span.base.index
    return (width, span.onset.index, best.onset.index, best.base.index, change.cell, change.testbed_id, change.metric)


@dataclass(frozen=True, slots=True)
class Survey:
    """The alerts, newest range first, and the history that they come from. `cells` counts the chosen cells that were judged."""

    alerts: tuple[Alert, ...]
    history: History
    cells: int


def survey(
    source: Source,
    *,
    branch: str | None = None,
    filters: CellFilter = EVERYTHING,
    metrics: Sequence[str] = (),
    since: datetime | None = None,
    window: int | None = None,
) -> Survey:
    """Return the alerts of a branch, or of all branches. Changes that the same commits can explain share an alert.

    `filters`, `metrics` (`status` is the pass or fail of a cell) and `since` (compared with the first run after the
    change) hide changes, and do not affect ranges and false discovery rates. A change at which the user's own model
    changed itself is in no alert. `window` limits the history that is read: `analysis.history.timelines.INCREMENT` is
    enough after one new night.
    """
    with connected(source) as conn:
        history = judge_history(conn, branch=branch, window=window)
        cells = set(cell_names(conn, filters).index.tolist())
        alerts = []
        for (repo, name), of_branch in groupby(history.changes, key=lambda one: (one.repo, one.branch)):
            for group in group_changes(one for one in of_branch if not one.model_changed):
                wanted = [one for one in group.changes if not metrics or (one.metric or "status") in metrics]
                shown = [one for one in wanted if one.cell_key in cells]
                if shown and (since is None or group.onset.started_at >= since.timestamp()):
                    alerts.append(_alert(conn, repo, name, group, shown))
    return Survey(tuple(sorted(alerts, key=_newest_first)), history, len(cells & history.cells))


def _alert(source: Source, repo: str, branch: str, group: Group, changes: Iterable[Change]) -> Alert:
    span = Span(group.base, group.onset)
    around = [Span(group.first, group.base), Span(group.onset, group.last)]
    return Alert(
        alert_id=short_hash([repo, branch, group.base.commit, group.onset.commit]),
        repo=repo,
        branch=branch,
        span=span,
        blame=blame_range(source, repo, span),
        also_possible=tuple(entry for one in around for entry in blame_range(source, repo, one).commits),
        changes=tuple(sorted(changes, key=_badness)),
    )


def _badness(change: Change) -> tuple[int, float, str, str, str]:
    order = {Direction.WORSE: 0, Direction.NEITHER: 1, Direction.BETTER: 2}[change.direction]
    size = -math.inf if change.levels is None else -abs(math.log(change.levels.ratio))
    return (order, size, change.cell, change.metric, change.testbed_id)


def _newest_first(alert: Alert) -> tuple[float, str, str, int]:
    return (-alert.span.onset.started_at, alert.repo, alert.branch, -alert.span.onset.index)


#: Maximum number of kernels listed.
MOST_KERNELS = 10


@dataclass(frozen=True, slots=True)
class Evidence:
    """Differences between the last measurement before a change and the first one after it.

    - `counts`: metrics that are counts and differ (before, after)
    - `code`: the change of the generated code, in words; None where a side has none
    - `explained`: the kernels that explain the change of device time, the largest share first
    - `kernels`: kernels whose number of launches differs, the largest change of time first
    - `reasons`: reasons of graph breaks, recompiles and cudagraph skips that only one side has
    - `control`: the eager time `before` and `after`, and its `metric`: if it changed too, the machine or ATen changed
    - `exception`: the exception of the cell, if its status changed
    """

    base_run: str
    onset_run: str
    counts: dict[str, tuple[float, float]]
    code: str | None
    explained: tuple[KernelShare, ...]
    kernels: tuple[KernelGroup, ...]
    reasons: tuple[ReasonDifference, ...]
    control: dict[str, Any] | None
    exception: str | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {**asdict(self), "kernels": [one.to_json() for one in self.kernels]}


def evidence_of(source: Source, change: Change) -> Evidence | None:
    """Return the evidence of a change; None where a measurement of either side is no longer stored."""
    sides = (change.span.base.runs[::-1], change.span.onset.runs)
    with connected(source) as conn:
        stored = [[measurement(conn, run.run_id, change.cell_id) for run in runs] for runs in sides]
        base, onset = (next((info for info in infos if info is not None), None) for infos in stored)
        if base is None or onset is None:
            return None
        code = code_changes(conn, base.run_id, onset.run_id, change.cell_id)
    # A kernel that only takes longer or shorter is left out: the metric shows that.
    kernels = [
        one
        for one in compared_kernels(base.details, onset.details, code)
        if one.name != REST and not one.unlisted and one.base_launches != one.new_launches
    ]
    control = CONTROL.get(change.metric, "")
    before, after = base.metrics.get(control), onset.metrics.get(control)
    return Evidence(
        base_run=base.run_id,
        onset_run=onset.run_id,
        counts=count_differences(base.metrics, onset.metrics),
        code=code.words if code else None,
        explained=explained(base.details, onset.details, code),
        kernels=tuple(kernels[:MOST_KERNELS]),
        reasons=tuple(reason_differences(base.details, onset.details)),
        control=None if None in (before, after) else {"metric": control, "before": before, "after": after},
        exception=onset.exception if not change.metric else None,
    )


def code_changes(source: Source, base_run: str, onset_run: str, cell_id: str) -> CodeChanges | None:
    """Return the changes of a cell's generated code between two runs; None where one of the runs has none."""
    with connected(source) as conn:
        base, onset = (code_of(conn, run_id, cell_id) for run_id in (base_run, onset_run))
    return changes(base, onset) if base and onset else None


def explanation_of(source: Source, base_run: str, onset_run: str, cell_id: str) -> tuple[str, ...]:
    """Return a line on the change of a cell's code between two runs, and a line for each kernel that explains the change."""
    with connected(source) as conn:
        code = code_changes(conn, base_run, onset_run, cell_id)
        details = (evidence(conn, run_id, cell_id)[0] for run_id in (base_run, onset_run))
        base, onset = (with_kernels(conn, cell_id, of_run) for of_run in details)
    lines = [f"generated code: {code.words}"] if code else []
    return (*lines, *(part.text for part in explained(base, onset, code)))
