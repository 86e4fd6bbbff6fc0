"""Which commit changed which cell's generated code, from the censuses of many commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from db.nights import RunInfo
from db.queries.cells import CellName
from db.queries.details import CensusCodes


@dataclass(frozen=True, slots=True)
class CellCode:
    """The code of a cell at a commit, the run that generated it, and the earlier run with other code, if there is one."""

    code_id: str
    run_id: str
    changed_from: str = ""


@dataclass(frozen=True, slots=True)
class CommitCodes:
    """A commit by one of its censuses, and the code of its cells that is known."""

    run: RunInfo
    cells: dict[CellName, CellCode] = field(default_factory=dict)

    @property
    def changed(self) -> list[CellName]:
        """The cells whose code differs from that of the commit before that has them."""
        return [cell for cell, code in self.cells.items() if code.changed_from]


def code_changes(censuses: Iterable[CensusCodes]) -> list[CommitCodes]:
    """Return the commits of censuses for one device, newest first, each with what it changed.

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
