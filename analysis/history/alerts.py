"""One alert per commit range over all the cells that changed there: what a person reads instead of a thousand series."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np

from analysis.compare.results import EnvironmentDifference
from analysis.history.blame import BlameRange, blame_range, commit_json
from analysis.history.blame import between as commits_between
from analysis.history.changes import Certainty, Change, Direction, Span
from analysis.history.series import Point
from analysis.history.timelines import History, judge_history
from analysis.stats.repeats import common_drift
from collector.metrics import MIN_EFFECT
from collector.vocabulary import short_hash
from db.commits.ranges import CommitEntry
from db.connecting import Source, connected
from db.queries.cell_names import cell_names
from db.queries.filters import EVERYTHING, CellFilter

#: Cells that are named where there is little room.
WORST = 5
#: Cells of one testbed and metric from which on what their eager times have in common is taken for the machine's.
FEWEST = 20


@dataclass(frozen=True, slots=True)
class Alert:
    """The changes that have suspects in common, worst first.

    `span` has the last point before and the first one after all of them, `blame` the commits in between. `also_possible` are
    the commits that only some of the changes leave open. `direction` is `worse` or `better` where all changes agree, else None.
    `alert_id` names the range: it becomes another one when a later run, of a commit in between, narrows that.
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
        """`pending` while not one change is established."""
        established = any(change.certainty is Certainty.ESTABLISHED for change in self.changes)
        return Certainty.ESTABLISHED if established else Certainty.PENDING

    @property
    def direction(self) -> Direction | None:
        """Which way all changes went; None where some went one way and some the other."""
        ways = {change.direction for change in self.changes}
        return ways.pop() if len(ways) == 1 else None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cell_ids, each once, worst first."""
        return tuple(dict.fromkeys(change.cell_id for change in self.changes))

    @property
    def is_over(self) -> bool:
        """Whether every cell is back where it was before."""
        return all(change.is_over for change in self.changes)

    @property
    def environment(self) -> tuple[EnvironmentDifference, ...]:
        """What else changed at the boundary of any of its changes, each key once."""
        found = {one.key: one for change in self.changes for one in (*change.environment, *change.program)}
        return tuple(found[key] for key in sorted(found))

    @property
    def environment_changed(self) -> bool:
        """Whether the commits are not the only suspects."""
        return any(change.environment_changed for change in self.changes)

    @property
    def median_worsening(self) -> float | None:
        """The median of how many times as bad the metrics became, in ln; below 1 is better. None of statuses alone."""
        found = [math.log(change.worsening) for change in self.changes if change.worsening is not None]
        return math.exp(float(np.median(found))) if found else None

    @property
    def common_drift(self) -> dict[tuple[str, str], float]:
        """By testbed and metric, how many times as much the eager time of its changed cells became: the median, where 20 or
        more changed. Eager runs know nothing of a commit of Inductor: what moved them all has moved the machine."""
        found: dict[tuple[str, str], list[float]] = {}
        for change in self.changes:
            if change.control is not None:
                found.setdefault((change.testbed_id, change.metric), []).append(math.log(change.control))
        return {place: math.exp(common_drift(values)) for place, values in found.items() if len(values) >= FEWEST}

    def of_machine(self, min_effects: Mapping[str, float] = MIN_EFFECT) -> tuple[Change, ...]:
        """The changes below the minimum effect after correction for the common drift of the machine."""
        drifts = self.common_drift
        return tuple(
            change
            for change in self.changes
            if (drift := drifts.get((change.testbed_id, change.metric))) is not None
            and change.levels is not None
            and abs(math.log(change.levels.ratio / drift)) < math.log1p(min_effects[change.metric])
        )

    def counts(self) -> dict[str, int]:
        """How many changes there are by what changed: a metric, or `broke` and `fixed`."""
        words = Counter(change.metric or _STATUS_WORDS[change.direction] for change in self.changes)
        return dict(sorted(words.items(), key=lambda one: (-one[1], one[0])))

    def worst(self, count: int = WORST) -> tuple[Change, ...]:
        """The changes that are worst for a user; what fails comes first."""
        return self.changes[:count]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
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


_STATUS_WORDS = {Direction.WORSE: "broke", Direction.BETTER: "fixed"}


@dataclass(slots=True)
class Group:
    """Changes with their common suspects: what landed after `base` up to `onset`; `first` to `last` holds all of their ranges."""

    base: Point
    onset: Point
    first: Point
    last: Point
    changes: list[Change] = field(default_factory=list)

    def overlaps(self, span: Span) -> bool:
        """Whether some commit lies in both ranges; ranges within one commit overlap where that is the same."""
        if span.is_one_commit or self.base.place == self.onset.place:
            return (span.base.place, span.onset.place) == (self.base.place, self.onset.place)
        return span.base.place < self.onset.place and self.base.place < span.onset.place

    def distance(self, span: Span) -> int:
        """How far the best place of a change lies outside the suspects, in commits measured."""
        return max(0, self.base.place - span.base.place, span.onset.place - self.onset.place)

    def take(self, change: Change) -> None:
        """Adds a change whose range overlaps: the suspects are what all ranges have in common."""
        base, onset = change.possible.base, change.possible.onset
        self.changes.append(change)
        self.base = max(self.base, base, key=_place)
        self.onset = min(self.onset, onset, key=_place)
        self.first = min(self.first, base, key=_place)
        self.last = max(self.last, onset, key=_place)


def group_changes(changes: Iterable[Change]) -> list[Group]:
    """Groups whose changes have at least one suspect in common; of one repository and branch.

    The narrowest ranges come first and make the groups; a wide one joins the group that its best place is nearest to, then
    the one with the most changes. A range that overlaps none begins a group. The order of the changes does not matter.
    """
    groups: list[Group] = []
    for change in sorted(changes, key=_by_width):
        span = change.possible
        fitting = [group for group in groups if group.overlaps(span)]
        if fitting:
            nearest = min(fitting, key=lambda one: (one.distance(change.span), -len(one.changes), one.onset.place))
        else:
            nearest = Group(span.base, span.onset, span.base, span.onset)
            groups.append(nearest)
        nearest.take(change)
    return sorted(groups, key=lambda one: (one.onset.place, one.base.place))


def _place(point: Point) -> int:
    return point.place


def _by_width(change: Change) -> tuple[int, int, int, int, str, str, str]:
    span, best = change.possible, change.span
    width = span.onset.place - span.base.place
    return (width, span.onset.place, best.onset.place, best.base.place, change.cell, change.testbed_id, change.metric)


@dataclass(frozen=True, slots=True)
class Survey:
    """The alerts, newest range first, the history that they come from, and of how many chosen cells it could judge anything."""

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
    min_effects: Mapping[str, float] = MIN_EFFECT,
) -> Survey:
    """The alerts of a branch, or of all: one for all changes that can come from the same commits.

    Changes are those of `analysis.history.timelines.judge_history`, over all cells and metrics. `filters`, `metrics` and `since`
    (of the first run after) only hide: they change no range and no false discovery rate. Metrics are named as in
    `min_effects`, and `status`. For one more night `window=analysis.history.timelines.INCREMENT` is enough; None looks at the
    whole history.

    Raises:
        KeyError: a metric that does not exist.
    """
    with connected(source) as conn:
        history = judge_history(conn, branch=branch, min_effects=min_effects, window=window)
        cells = set(cell_names(conn, filters).index.tolist())
        groups = [
            (repo_branch, group)
            for repo_branch, of_branch in groupby(history.changes, key=lambda one: (one.repo, one.branch))
            for group in group_changes(of_branch)
        ]
        alerts = []
        for (repo, name), group in groups:
            shown = [one for one in group.changes if one.cell_key in cells and _is_wanted(one, metrics)]
            if shown and (since is None or group.onset.started_at >= since.timestamp()):
                alerts.append(_alert(conn, repo, name, group, shown))
    return Survey(tuple(sorted(alerts, key=_newest_first)), history, len(cells & history.cells))


def _is_wanted(change: Change, metrics: Sequence[str]) -> bool:
    return not metrics or (change.metric or "status") in metrics


def _alert(source: Source, repo: str, branch: str, group: Group, changes: Iterable[Change]) -> Alert:
    span = Span(group.base, group.onset)
    around = (
        *commits_between(source, repo, group.first, group.base),
        *commits_between(source, repo, group.onset, group.last),
    )
    return Alert(
        alert_id=short_hash([repo, branch, group.base.commit, group.onset.commit]),
        repo=repo,
        branch=branch,
        span=span,
        blame=blame_range(source, repo, span),
        also_possible=around,
        changes=tuple(sorted(changes, key=_badness)),
    )


def _badness(change: Change) -> tuple[int, float, str, str, str]:
    order = {Direction.WORSE: 0, Direction.NEITHER: 1, Direction.BETTER: 2}[change.direction]
    size = -math.inf if change.levels is None else -abs(math.log(change.levels.ratio))
    return (order, size, change.cell, change.metric, change.testbed_id)


def _newest_first(alert: Alert) -> tuple[float, str, str, int]:
    return (-alert.span.onset.started_at, alert.repo, alert.branch, -alert.span.onset.place)
