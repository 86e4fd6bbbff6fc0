"""A regression record with its cell and commits, for the command line and the dashboard."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from analysis.compare.adjustment import CONTROL
from analysis.history.alerts_evidence import explanation_of
from analysis.present import NOTHING
from analysis.rerun_command import stored_repro
from collector.metrics import METRICS, Dimension
from collector.vocabulary import Cell
from db.commits.ranges import CommitEntry, commit_range
from db.connecting import Source, connected
from db.errors import CommitError
from db.queries.cell_names import cell_names
from db.queries.details import cell
from db.regressions.records import RegressionInfo, list_regressions


def dimension_of(info: RegressionInfo) -> str:
    """Return the dimension that got worse: that of its metric, correctness where a status changed."""
    dimension = METRICS[info.metric].dimension if info.metric in METRICS else Dimension.CORRECTNESS
    return dimension.value if dimension else NOTHING


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its cell and its blame range. `unknown` says why there is no blame range.

    `kernels` says of a slower cell what became of its generated code, and which kernels explain the loss.
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
        """How large the change is, in ln; infinite for a status, and for what was nothing before."""
        base, new = self.info.base_value, self.info.new_value
        return abs(math.log(new / base)) if base and new and base > 0 and new > 0 else math.inf


@dataclass(frozen=True, slots=True)
class OfCommit:
    """The records of one onset, by dimension and then the largest change first."""

    branch: str
    repo: str
    commit: str | None
    onset_at: datetime | None
    records: tuple[Listed, ...]

    @property
    def tally(self) -> str:
        """`43 latency, 3 memory`."""
        counts = Counter(one.dimension for one in self.records)
        return ", ".join(f"{count} {dimension}" for dimension, count in counts.items())


def by_commit(records: Iterable[Listed]) -> list[OfCommit]:
    """Return the records by the commit of their onset, the newest onset first."""
    groups: dict[tuple[str, str, str | None], list[Listed]] = {}
    for one in records:
        groups.setdefault((one.info.branch, one.info.repo, one.info.onset_commit), []).append(one)
    order = [dimension.value for dimension in Dimension]

    def place(one: Listed) -> tuple[int, float, str]:
        return order.index(one.dimension) if one.dimension in order else len(order), -one.size, one.name

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
    """The records, newest first. Cell and commits are left out: `record_of` reads them for one record."""
    with connected(source) as conn:
        names = cell_names(conn).set_index("cell_id")["cell"].to_dict()
        records = list_regressions(conn, open_only=not with_closed)
        return [Listed(info, names.get(info.cell_id, info.cell_id)) for info in records]


def record_of(conn: Connection, info: RegressionInfo) -> Record:
    """A record with its cell, and the commits after the base up to the onset."""
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
    """A stored cell as a `Cell`; None where it is not stored or this version cannot read its config."""
    try:
        info = cell(source, cell_id)
        return info.as_cell() if info else None
    except (ValueError, TypeError):
        return None
