"""Changes over commits: the runs of a model with their charts, and the commits that changed the code of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pandas as pd

from analysis.elements import charts
from analysis.elements.wording import axis_of, count, moment, number
from collector.metrics import METRICS
from db.connecting import Source
from db.nights import NightInfo, RunInfo
from db.queries import series
from db.queries.cells import CellName
from db.queries.details import CensusCodes
from db.schema import HISTORY_METRICS


@dataclass(frozen=True, slots=True)
class CellCode:
    """The code of a cell at a commit, the run that generated it, and the earlier run with other code, if there is one."""

    code_id: str
    run_id: str
    changed_from: str = ""


@dataclass(frozen=True, slots=True)
class CommitCodes:
    """A commit, as the run of its newest census, and the known code of its cells."""

    run: RunInfo
    cells: dict[CellName, CellCode] = field(default_factory=dict)

    @property
    def changed(self) -> list[CellName]:
        """The cells whose code differs from their code at the last commit before that has them."""
        return [cell for cell, code in self.cells.items() if code.changed_from]


def code_changes(censuses: Iterable[CensusCodes]) -> list[CommitCodes]:
    """Return the commits of censuses for one device, newest first, each with the code that it changed.

    Commits come in the order of their dates, or of their censuses where a date is missing. The newest census of a cell at a
    commit counts.
    """
    commits: dict[tuple[str, str], CommitCodes] = {}
    for one in sorted(censuses, key=lambda one: one.run.started_at):
        key = one.run.repo, one.run.commit
        codes = {cell: CellCode(code_id, one.run.run_id) for cell, code_id in one.codes.items()}
        commits[key] = CommitCodes(one.run, (commits[key].cells if key in commits else {}) | codes)
    before: dict[CellName, CellCode] = {}
    found = []
    for commit in sorted(commits.values(), key=_place):
        cells = {cell: _compared(code, before.get(cell)) for cell, code in commit.cells.items()}
        found.append(CommitCodes(commit.run, cells))
        before |= cells
    return found[::-1]


def _place(commit: CommitCodes) -> tuple[datetime, datetime]:
    return commit.run.commit_date or commit.run.started_at, commit.run.started_at


def _compared(code: CellCode, before: CellCode | None) -> CellCode:
    differs = before is not None and before.code_id != code.code_id
    return CellCode(code.code_id, code.run_id, before.run_id if differs and before else "")


#: The metrics that are read of a model, and the metrics that are drawn over time, the most informative first.
MODEL_METRICS = (
    *(*HISTORY_METRICS, "device_speedup", "compression", "eager_ms", "compiled_peak_bytes"),
    *("error_margin", "host_overhead_us", "joules_per_call"),
)
DRAWN = (
    *("compiled_kernel_ms", "compiled_ms", "eager_ms"),
    *("device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
    *("error_margin", "host_overhead_us", "joules_per_call"),
)
#: Number of newest runs that are drawn unless all are asked for.
NEWEST = 120


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a model in time, as charts take them: rows, the labels of the places, and the places of base and new."""

    rows: pd.DataFrame
    labels: Sequence[str]
    configs: Sequence[str]
    sides: Mapping[str, int]
    colors: charts.Colors

    def metric(self, metric: str) -> charts.Figure:
        """Return the chart of a metric."""
        title = METRICS[metric].title
        size, head = axis_of(metric, title)
        rows = self.rows.dropna(subset=[metric])
        texts = [number(metric, value) for value in rows[metric]]
        rows = rows.assign(value=rows[metric] / size, text=texts)
        facts = rows.drop_duplicates("place").set_index("place")[["started", "commit", "run"]]
        chart = charts.lines(
            rows, facts, self.labels, self.configs, title=head, pick="run", colors=self.colors, sides=self.sides
        )
        words = f"{title} over {count(rows['place'].nunique(), 'run')}: {charts.from_to(rows, self.configs)}"
        return charts.Figure(f"history_{metric}", chart, words, picks=True)

    def statuses(self) -> charts.Figure:
        """Return the chart of how each run ended."""
        columns = ["place", "config", "status", "started", "commit", "run"]
        tally = self.rows["status"].fillna("missing").value_counts()
        words = "How each run ended: " + ", ".join(f"{number_of} {status}" for status, number_of in tally.items())
        chart = charts.statuses(self.rows[columns], self.labels, self.configs, self.sides, self.colors)
        return charts.Figure("history_status", chart, words)


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the `NEWEST` newest runs."""
    in_time = rows.drop_duplicates("run_id").sort_values(["started_at", "run_id"])
    return rows[rows["run_id"].isin(in_time["run_id"].iloc[-NEWEST:])]


def runs_of(
    places: Mapping[str, str],
    rows: pd.DataFrame,
    configs: Sequence[str],
    marks: Mapping[str, Collection[str]],
    colors: charts.Colors,
) -> Runs:
    """Return the runs of `rows` in the order of `places`, which is a result of `labels_of_runs`.

    `marks` has the names of runs by the label of the rule that marks their place.
    """
    ran = set(rows["run_id"])
    labels = {run_id: label for run_id, label in places.items() if run_id in ran}
    numbers = {run_id: place for place, run_id in enumerate(labels)}
    history = rows.assign(
        place=rows["run_id"].map(numbers),
        date=rows["started_at"],
        started=[moment(when) for when in rows["started_at"]],
        commit=rows["commit"].astype(str).str[:10],
        run=rows["run_id"],
        line=rows["config"],
    ).sort_values("place", kind="stable")
    marked: dict[str, int] = {}
    for name, runs in marks.items():
        of_side = [numbers[run] for run in runs if run in numbers]
        marked |= {name: of_side[0]} if of_side else {}
    return Runs(history, list(labels.values()), configs, marked, colors)


def labels_of_runs(source: Source, nights: Iterable[NightInfo]) -> dict[str, str]:
    """Return the label of each run's place in a chart, by the run's name, in the order of commits: the release, else the day.

    Where several commits of a branch share a day, each is labelled by the first digits of its sha.
    """
    runs = {run.run_id: run for night in nights for run in night.runs}
    dated = {(run.branch, run.commit): f"{run.commit_date:%Y-%m-%d}" for run in runs.values() if run.commit_date}
    times = Counter((branch, day) for (branch, _), day in dated.items())
    of_commits = {(branch, sha): day if times[branch, day] == 1 else sha[:7] for (branch, sha), day in dated.items()}
    # Where the date of the commit is not known, the time when the run started is the label.
    days = {
        name: of_commits.get((run.branch, run.commit)) or f"{run.started_at:%m-%d %H:%M}" for name, run in runs.items()
    }
    return {name: runs[name].release or days[name] for name in series.runs_in_order(source)}
