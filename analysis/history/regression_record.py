"""A regression record with its cell and commits, and whether its series is back at the level before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
from sqlalchemy import Connection

from analysis.compare.adjustment import CONTROL
from analysis.compare.cell_verdicts import LEAK, MARGIN
from analysis.history.alerts import explanation_of
from analysis.present import NOTHING
from analysis.rerun import stored_repro
from analysis.stats.averages import Numbers
from analysis.stats.changepoints import difference_sigma
from analysis.stats.levels import is_nearer
from collector.metrics import METRICS, Dimension
from collector.vocabulary import Cell
from db.commits.commit_history import CommitEntry, commit_range
from db.connecting import Source, connected
from db.queries.cells import cell_names
from db.queries.details import cell
from db.queries.series import SeriesRun, series_runs, series_values
from db.regression_records import RegressionInfo, list_regressions
from db.store_errors import CommitError


def dimension_of(info: RegressionInfo) -> str:
    """Return the dimension that got worse: the metric's dimension, or correctness where a status changed."""
    dimension = METRICS[info.metric].dimension if info.metric in METRICS else Dimension.CORRECTNESS
    return dimension.value if dimension else NOTHING


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its cell and its blame range. `unknown` says why there is no blame range.

    `kernels` has, for a change of latency, a line on the generated code and a line for each kernel that explains the loss.
    `repro` is the command that measures the cell as the onset did; empty where its config cannot be read.
    """

    info: RegressionInfo
    cell: Cell | None
    distance: int | None
    commits: tuple[CommitEntry, ...]
    unknown: str
    kernels: tuple[str, ...] = ()
    repro: str = ""

    @property
    def name(self) -> str:
        """The name of the cell, or its id where this version cannot read its config."""
        return str(self.cell) if self.cell else self.info.cell_id


@dataclass(frozen=True, slots=True)
class Listed:
    """A record in a list. `name` is the name of the cell, or its id where the cell is not stored."""

    info: RegressionInfo
    name: str

    @property
    def dimension(self) -> str:
        """The dimension that got worse."""
        return dimension_of(self.info)

    @property
    def size(self) -> float:
        """The size of the change, in ln; infinite for a status, and for a metric that is 0 on either side."""
        return -rank(self.info)[1]


def rank(info: RegressionInfo) -> tuple[int, float]:
    """Return a sort key for records of one onset: in the order of dimensions, and of each dimension the largest change first.

    A change of a status, and of a metric that is 0 on either side, counts as infinite.
    """
    order, base, new = [dimension.value for dimension in Dimension], info.base_value, info.new_value
    size = abs(math.log(new / base)) if base and new and base > 0 and new > 0 else math.inf
    dimension = dimension_of(info)
    return order.index(dimension) if dimension in order else len(order), -size


@dataclass(frozen=True, slots=True)
class OfCommit:
    """The records of one onset, in the order of dimensions, and of each dimension the largest change first."""

    branch: str
    repo: str
    commit: str | None
    onset_at: datetime | None
    records: tuple[Listed, ...]

    @property
    def tally(self) -> str:
        """The number of records of each dimension, in words: `43 latency, 3 memory`."""
        counts = Counter(one.dimension for one in self.records)
        return ", ".join(f"{count} {dimension}" for dimension, count in counts.items())


def by_commit(records: Iterable[Listed]) -> list[OfCommit]:
    """Return the records in groups by the commit of their onset, the newest onset first."""
    groups: dict[tuple[str, str, str | None], list[Listed]] = {}
    for one in records:
        groups.setdefault((one.info.branch, one.info.repo, one.info.onset_commit), []).append(one)

    def place(one: Listed) -> tuple[tuple[int, float], str]:
        return rank(one.info), one.name

    found = [
        OfCommit(
            *key,
            max((one.info.onset_at or one.info.opened_at for one in group), default=None),
            tuple(sorted(group, key=place)),
        )
        for key, group in groups.items()
    ]
    return sorted(
        found, key=lambda group: (group.onset_at is None, -(group.onset_at.timestamp() if group.onset_at else 0.0))
    )


def listed(source: Source, *, with_closed: bool) -> list[Listed]:
    """Return the records, newest first. Cell and commits are left out: `record_of` reads them for one record."""
    with connected(source) as conn:
        names = cell_names(conn).set_index("cell_id")["cell"].to_dict()
        records = list_regressions(conn, open_only=not with_closed)
        return [Listed(info, names.get(info.cell_id, info.cell_id)) for info in records]


def record_of(conn: Connection, info: RegressionInfo) -> Record:
    """Return a record with its cell, and the commits after the base up to the onset."""
    distance: int | None = None
    commits: tuple[CommitEntry, ...] = ()
    unknown = ""
    if info.base_commit and info.base_commit == info.onset_commit:
        distance = 0  # two runs of one commit have no commits in between
    elif info.base_commit and info.onset_commit:
        try:
            blame = commit_range(conn, info.base_commit, info.onset_commit, info.repo)
            distance, commits = blame.distance, blame.commits
        except CommitError as error:
            unknown = str(error)
    kernels: tuple[str, ...] = ()
    if info.metric in CONTROL and info.base_run and info.onset_run:
        kernels = explanation_of(conn, info.base_run, info.onset_run, info.cell_id)
    of_record = cell_of(conn, info.cell_id)
    repro = stored_repro(conn, of_record, info.onset_run) if of_record else ""
    return Record(info, of_record, distance, commits, unknown, kernels, repro)


def cell_of(source: Source, cell_id: str) -> Cell | None:
    """Return a stored cell as a `Cell`; None where it is not stored or this version cannot read its config."""
    try:
        info = cell(source, cell_id)
        return info.as_cell() if info else None
    except (ValueError, TypeError):
        return None


_Line = tuple[str, str, str]

#: Number of newest runs that must agree.
RUNS = 2
#: A run counts as back if it is more than this many standard deviations of the noise away from the worse level.
AWAY = 2.0
#: Number of newest runs of a line that are read. The noise comes from their successive differences.
LOOK_BACK = 30


class Standing(StrEnum):
    """The state of a series by its two newest runs: both at the base's level, both at the worse level, or neither."""

    BACK = "back"
    STILL_THERE = "still_there"
    OPEN = "open"


class Timeline:
    """The runs of a store in the order of the repository's history, and the values of the newest 30 runs of each line.

    A line is a branch of a repository on one testbed. The values of a line are read once, at its first use.
    """

    def __init__(self, source: Connection, metrics: Iterable[str]) -> None:
        """Read the runs of the store. `metrics` names all metrics that `newest` will be called for."""
        self._source, self._metrics = source, tuple(sorted({METRICS[name].name for name in metrics if name}))
        names = cell_names(source)
        self._keys: dict[str, int] = dict(zip(names["cell_id"], names.index.tolist(), strict=True))
        self._lines: dict[_Line, list[SeriesRun]] = {}
        self._positions: dict[tuple[str, str], dict[str, int]] = {}
        self._rows: dict[_Line, Numbers] = {}
        for run in series_runs(source):
            self._lines.setdefault((run.repo, run.branch, run.testbed_id), []).append(run)
            of_branch = self._positions.setdefault((run.repo, run.branch), {})
            of_branch.setdefault(run.commit, len(of_branch))

    def position(self, repo: str, branch: str, commit: str | None) -> int | None:
        """Return the index of a commit among a branch's measured commits; None for a commit that no stored run measured."""
        return None if commit is None else self._positions.get((repo, branch), {}).get(commit)

    def newest(self, record: RegressionInfo) -> list[tuple[SeriesRun, float]]:
        """Return the runs with a value among the newest 30, each with its value, in order; a status is 1 (pass) or 0 (fail)."""
        line = (record.repo, record.branch, record.testbed_id)
        runs = self._lines.get(line, [])[-LOOK_BACK:]
        if line not in self._rows:
            chunks = list(series_values(self._source, [run.key for run in runs], self._metrics))
            self._rows[line] = np.concatenate(chunks) if chunks else np.empty((0, 3 + len(self._metrics)))
        rows = self._rows[line]
        rows = rows[rows[:, 1] == self._keys.get(record.cell_id, -1)]
        values = rows[:, 2]
        if record.metric:
            measured = rows[:, 3 + self._metrics.index(record.metric)]
            least = 0 if _may_be_none(record.metric) else np.nextafter(0, 1)
            values = np.where((values == 1) & (measured >= least), measured, np.nan)
        measured_runs = []
        for run in runs:
            of_run = values[(rows[:, 0] == run.key) & np.isfinite(values)]
            if of_run.size:
                measured_runs.append((run, float(of_run.mean())))
        return measured_runs


def standing(record: RegressionInfo, timeline: Timeline, since: datetime | None = None) -> Standing:
    """Return the state of a record's series by its two newest runs since the onset, in the order of the repository.

    Runs that started before `since` do not count. A metric is back if both runs are nearer to the base's level than to the worse
    level (in ln), and more than two standard deviations of the noise away from the worse level. It is still there if both are
    nearer to the worse level. For leaks, errors over their limit and counts the nearer level alone decides, without ln and
    noise. A status is back if both runs pass, and still there if both fail.
    """
    history = timeline.newest(record)
    first = timeline.position(record.repo, record.branch, record.onset_commit) or 0
    newest = [
        value
        for run, value in history
        if (timeline.position(run.repo, run.branch, run.commit) or 0) >= first
        and (since is None or run.started_at >= since.timestamp())
    ][-RUNS:]
    if len(newest) < RUNS:
        return Standing.OPEN
    if not record.metric:
        return _agreed([value == 1 for value in newest], [value == 0 for value in newest])
    base, new = record.base_value, record.new_value
    if base is None or new is None or base == new:
        return Standing.OPEN
    if _may_be_none(record.metric):
        back = [abs(value - base) < abs(value - new) for value in newest]
        return _agreed(back, [not one for one in back])
    if min(base, new) <= 0:
        return Standing.OPEN
    sigma = difference_sigma(np.log([value for _, value in history]))
    near = [is_nearer(value, base, new) for value in newest]
    clear = [abs(math.log(value / new)) > AWAY * sigma for value in newest]
    return _agreed([a and b for a, b in zip(near, clear, strict=True)], [not a for a in near])


def _may_be_none(metric: str) -> bool:
    """Return whether 0 is a measurement, as it is for a leak, an error over its limit and a count."""
    return metric in (LEAK, MARGIN) or METRICS[metric].is_count


def _agreed(back: Sequence[bool], still: Sequence[bool]) -> Standing:
    return Standing.BACK if all(back) else Standing.STILL_THERE if all(still) else Standing.OPEN
