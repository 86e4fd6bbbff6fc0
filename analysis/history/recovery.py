"""Whether the newest runs of a series are back at the level of a pinned base: what alone makes a regression `fixed`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from analysis.compare.leaks import LEAK
from analysis.stats.changepoints import difference_sigma
from analysis.stats.levels import is_nearer
from collector.metrics import METRICS
from db.queries.cell_names import cell_names
from db.queries.series import SeriesRun, series_runs, series_values

Numbers = npt.NDArray[np.float64]
_Line = tuple[str, str, str]

#: Newest runs that have to agree.
RUNS = 2
#: Standard deviations of the noise that a run must lie from the worse level before it counts as back.
AWAY = 2.0
#: Runs of a line that are looked at, and from whose successive differences the noise is taken.
LOOK_BACK = 30


class Standing(StrEnum):
    """Where the two newest runs of a series are: both at the base's level, both at the worse one, or neither."""

    BACK = "back"
    STILL_THERE = "still_there"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A series by its public names, and the two levels (in the metric's unit) that a record holds; None of a status."""

    cell_id: str
    repo: str
    branch: str
    testbed_id: str
    metric: str
    base_value: float | None
    new_value: float | None
    onset_commit: str | None


class Timeline:
    """The runs of a store in the order of the repository's history, and what the newest 30 of each line measured.

    A line is a branch of a repository on one testbed; what a line measured is read once, when it is first asked for.
    """

    def __init__(self, source: Connection, metrics: Iterable[str]) -> None:
        """`metrics` are those that will be asked for."""
        self._source, self._metrics = source, tuple(sorted({METRICS[name].name for name in metrics if name}))
        names = cell_names(source)
        self._keys: dict[str, int] = dict(zip(names["cell_id"], names.index.tolist(), strict=True))
        self._lines: dict[_Line, list[SeriesRun]] = {}
        self._places: dict[tuple[str, str], dict[str, int]] = {}
        self._rows: dict[_Line, Numbers] = {}
        for run in series_runs(source):
            self._lines.setdefault((run.repo, run.branch, run.testbed_id), []).append(run)
            of_branch = self._places.setdefault((run.repo, run.branch), {})
            of_branch.setdefault(run.commit, len(of_branch))

    def place(self, repo: str, branch: str, commit: str | None) -> int | None:
        """Which of the commits measured on a branch this is, 0 for the first; None for one that no stored run measured."""
        return None if commit is None else self._places.get((repo, branch), {}).get(commit)

    def newest(self, pinned: Pinned) -> list[tuple[SeriesRun, float]]:
        """The value of the metric, or 1 and 0 for pass and fail, in those of the newest 30 runs that have one, in order."""
        line = (pinned.repo, pinned.branch, pinned.testbed_id)
        runs = self._lines.get(line, [])[-LOOK_BACK:]
        if line not in self._rows:
            chunks = list(series_values(self._source, [run.key for run in runs], self._metrics))
            self._rows[line] = np.concatenate(chunks) if chunks else np.empty((0, 3 + len(self._metrics)))
        rows = self._rows[line]
        rows = rows[rows[:, 1] == self._key(pinned.cell_id)]
        values = rows[:, 2]
        if pinned.metric:
            measured = rows[:, 3 + self._metrics.index(pinned.metric)]
            least = 0 if pinned.metric == LEAK else np.nextafter(0, 1)  # what leaks nothing was measured, too
            values = np.where((values == 1) & (measured >= least), measured, np.nan)
        found = []
        for run in runs:
            of_run = values[(rows[:, 0] == run.key) & np.isfinite(values)]
            if of_run.size:
                found.append((run, float(of_run.mean())))
        return found

    def _key(self, cell_id: str) -> int:
        return self._keys.get(cell_id, -1)


def standing(pinned: Pinned, timeline: Timeline, since: datetime | None = None) -> Standing:
    """Where a series stands, by its two newest runs from the onset on, in the order of the repository.

    Runs that started before `since` do not count. A metric is back where both runs are nearer to the base's level than to
    the worse one, in ln, and more than two standard deviations of the noise (of the successive differences of the newest
    30 runs) from the worse one; it is still there where both are nearer to that. A leak is back where both are nearer to the
    base's, in bytes. A status is back where both pass, still there where both fail.
    """
    told = timeline.newest(pinned)
    first = timeline.place(pinned.repo, pinned.branch, pinned.onset_commit) or 0
    newest = [
        value
        for run, value in told
        if (timeline.place(run.repo, run.branch, run.commit) or 0) >= first
        and (since is None or run.started_at >= since.timestamp())
    ][-RUNS:]
    if len(newest) < RUNS:
        return Standing.OPEN
    if not pinned.metric:
        return _agreed([value == 1 for value in newest], [value == 0 for value in newest])
    base, new = pinned.base_value, pinned.new_value
    if base is None or new is None or base == new:
        return Standing.OPEN
    if pinned.metric == LEAK:
        back = [abs(value - base) < abs(value - new) for value in newest]
        return _agreed(back, [not one for one in back])
    if min(base, new) <= 0:
        return Standing.OPEN
    sigma = difference_sigma(np.log([value for _, value in told]))
    near = [is_nearer(value, base, new) for value in newest]
    clear = [abs(math.log(value / new)) > AWAY * sigma for value in newest]
    return _agreed([a and b for a, b in zip(near, clear, strict=True)], [not a for a in near])


def _agreed(back: Sequence[bool], still: Sequence[bool]) -> Standing:
    return Standing.BACK if all(back) else Standing.STILL_THERE if all(still) else Standing.OPEN
