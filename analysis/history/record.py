"""A record of a regression with what the database knows around it, for the command line and the dashboard alike."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from collector.repro import repro_command
from collector.vocabulary import Cell
from db.commits.ranges import CommitEntry, commit_range
from db.connecting import Source, connected
from db.errors import CommitError
from db.queries.cell_names import cell_names
from db.queries.details import cell
from db.regressions.records import RegressionInfo, list_regressions


@dataclass(frozen=True, slots=True)
class Record:
    """A record with what the database knows around it; `unknown` says why there is no blame range."""

    info: RegressionInfo
    cell: Cell | None
    distance: int | None
    commits: tuple[CommitEntry, ...]
    unknown: str

    @property
    def name(self) -> str:
        """The cell as people write it, or its id where its config is another version's."""
        return str(self.cell) if self.cell else self.info.cell_id

    @property
    def repro(self) -> str:
        """The command that measures the cell again; empty where the config cannot be read."""
        return repro_command(self.cell) if self.cell else ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A record as a list shows it; `name` is the cell as people write it, or its id where no cell of that id is stored."""

    info: RegressionInfo
    name: str


def listed(source: Source, *, with_closed: bool) -> list[Listed]:
    """The records, the one that was opened last first, without what `record_of` asks the database of each."""
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
        distance = 0  # two runs of one commit: nothing landed, whether or not its place is known
    elif info.base_commit and info.onset_commit:
        try:
            found = commit_range(conn, info.base_commit, info.onset_commit, info.repo)
            distance, commits = found.distance, found.commits
        except CommitError as error:
            unknown = str(error)
    return Record(info, cell_of(conn, info.cell_id), distance, commits, unknown)


def cell_of(conn: Connection, cell_id: str) -> Cell | None:
    """The collector's value of a stored cell; None where its config is another version's."""
    try:
        info = cell(conn, cell_id)
        return info.as_cell() if info else None
    except (ValueError, TypeError):
        return None
