"""Stores a repository's history: every commit with its position in the line and what its message says of others.

The stored commits of the repository and the line of the import are held in memory and compared there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, Row, bindparam, func, insert, select, update

from db.commits.links import CommitsReport, Mark, link, read_message
from db.commits.ranges import CommitEntry, find_commit, put_tags
from db.connecting import Source, changing, chunks, connected
from db.incoming import branch_key
from db.schema import Branch, Commit, Run, Tag
from db.store_errors import CommitError, one_line
from db.stored_values import clean

_FACTS = ("position", "author_date", "committed_at", "title", "pr_number")
#: The values of `_FACTS`, or the first of them.
Facts = tuple[Any, ...]
_CHUNK = 10_000


class LandedCommit(NamedTuple):
    """A commit as git tells it: its position in the line (0 is the oldest), moments in seconds since 1970, its message."""

    position: int
    sha: str
    author_date: float | None
    committed_at: float | None
    subject: str
    message: str


def store_commits(
    target: Engine | Connection,
    repo: str,
    chosen: Iterable[LandedCommit],
    others: Iterable[tuple[int, str]] = (),
    *,
    starts: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    replace: bool = False,
) -> CommitsReport:
    """Stores the commits `chosen` of a line; `others` are the position and sha of all the rest of it.

    Both may be generators and are read once, within the transaction. `starts` has, by the name of a branch, the sha of
    the chosen commit at which it left the line; `tags` are for `put_tags`. Git's facts replace what bundles said.
    Commits that an earlier, longer import knows keep their positions. If that import's line is another one, neither the
    beginning nor the continuation of this, `CommitError` is raised unless `replace` drops the earlier line. Raises
    `StoreError` where the database cannot be written. Nothing is half-written.
    """
    with changing(target) as change:
        line = {sha: position for position, sha in others}
        facts, marks = _read(chosen)
        line |= {sha: values[0] for sha, values in facts.items()}
        columns = (Commit.id, Commit.sha, *(getattr(Commit, name) for name in _FACTS))
        stored = {row.sha: row for row in change.conn.execute(select(*columns).where(Commit.repo == repo))}
        cleared = _settle_line(change.conn, repo, stored, line, replace)
        moved = {sha: (line[sha],) for sha in line.keys() - facts.keys() if _has_moved(stored.get(sha), line)}
        known = {sha: values for sha, values in facts.items() if sha in stored}
        updated = {sha: values for sha, values in known.items() if values != tuple(stored[sha][2:])}
        _update(change.conn, stored, moved)
        _update(change.conn, stored, updated)
        new = [sha for sha in facts if sha not in known]
        for shas in chunks(new, _CHUNK):
            rows = [{"repo": repo, "sha": sha, **dict(zip(_FACTS, facts[sha], strict=True))} for sha in shas]
            change.conn.execute(insert(Commit), rows)
        report = CommitsReport(len(line), len(new), len(updated), len(known) - len(updated))
        link(change.conn, repo, marks, line.keys(), facts.keys(), report)
        started = [put_start(change.conn, repo, name, sha) for name, sha in (starts or {}).items()]
        tagged = put_tags(change.conn, repo, tags or {})
        report.changed = bool(cleared or moved or updated or new or report.changed or tagged or any(started))
        report.tags = change.conn.execute(select(func.count()).where(Tag.repo == repo)).scalar_one()
        change.made = report.changed
        return report


def _read(chosen: Iterable[LandedCommit]) -> tuple[dict[str, Facts], list[Mark]]:
    """The columns of each commit by sha, and the commits whose message speaks of others."""
    facts: dict[str, Facts] = {}
    marks = []
    for commit in chosen:
        title = clean(commit.subject)
        message = read_message(title, commit.message)
        if message.tells_of_others:
            marks.append(Mark(commit.sha, commit.position, message))
        dates = commit.author_date, commit.committed_at
        facts[commit.sha] = (commit.position, *dates, title, message.subject.pr_number)
    return facts, marks


def _has_moved(row: Row[Any] | None, line: Mapping[str, int]) -> bool:
    return row is not None and row.position is not None and row.position != line[row.sha]


def _settle_line(
    conn: Connection, repo: str, stored: Mapping[str, Row[Any]], line: Mapping[str, int], replace: bool
) -> int:
    """Checks that the stored line and this one agree; returns how many commits lost their position because they do not."""
    placed = [row for row in stored.values() if row.position is not None]
    strays = sorted((row for row in placed if row.sha not in line), key=lambda row: row.position)
    if not strays:
        return 0
    if strays[0].position >= len(line) and not any(_has_moved(row, line) for row in placed if row.sha in line):
        return 0  # the strays come after the end of this line: it is an older state of the same one
    if not replace:
        raise CommitError(
            f"{one_line(repo)}: {len(strays)} commits of an earlier import are not in this history, the first is"
            f" {strays[0].sha[:12]} {one_line(strays[0].title or '', 50)!r}: name the main line with --ref, or say --replace"
            " where it was rewritten"
        )
    _update(conn, stored, {row.sha: (None,) for row in strays})
    return len(strays)


def _update(conn: Connection, stored: Mapping[str, Row[Any]], changes: Mapping[str, Facts]) -> None:
    """Sets the first columns of `_FACTS` of commits, by sha; all changes have equally many."""
    if changes:
        names = _FACTS[: len(next(iter(changes.values())))]
        statement = update(Commit).where(Commit.id == bindparam("key"))
        statement = statement.values({name: bindparam(f"new_{name}") for name in names})
        parameters = ["key", *(f"new_{name}" for name in names)]
        rows = [dict(zip(parameters, (stored[sha].id, *facts), strict=True)) for sha, facts in changes.items()]
        conn.execute(statement, rows)


@dataclass(frozen=True, slots=True)
class BranchStart:
    """A branch of a repository; `start` is the commit at which it left the main line, None where it is not known."""

    repo: str
    name: str
    start: CommitEntry | None


def branch_starts(source: Source, name: str | None = None) -> list[BranchStart]:
    """The branches in the database (or those of one name), sorted."""
    query = select(Branch.repo, Branch.name, Commit.sha).outerjoin(Commit, Commit.id == Branch.start)
    query = query.order_by(Branch.repo, Branch.name)
    with connected(source) as conn:
        rows = conn.execute(query if name is None else query.where(Branch.name == name)).all()
        return [
            BranchStart(row.repo, row.name, find_commit(conn, row.sha, row.repo) if row.sha else None) for row in rows
        ]


def set_branch_start(target: Engine | Connection, repo: str, name: str, sha: str) -> CommitEntry:
    """Stores where a branch started; adds the branch if there is none of this name.

    Raises `CommitError` for a commit that is not in the database.
    """
    with changing(target) as change:
        start = find_commit(change.conn, sha, repo)
        change.made = put_start(change.conn, repo, name, start.sha)
    return start


def put_start(conn: Connection, repo: str, name: str, sha: str) -> bool:
    """Stores the start of a branch (the whole sha of a stored commit); returns whether that changed anything."""
    if not name.strip():
        raise CommitError("a branch needs a name")
    name = clean(name)
    number = conn.execute(select(Commit.id).where(Commit.repo == repo, Commit.sha == sha)).scalar_one()
    known = conn.execute(select(Branch.start).where(Branch.repo == repo, Branch.name == name)).scalar()
    if known == number:
        return False
    branch = branch_key(conn, repo, name)
    conn.execute(update(Branch).where(Branch.id == branch).values(start=number))
    return True


def measured_commits(source: Source, repo: str) -> set[str]:
    """The commits that runs of a repository measured."""
    return _shas(source, Commit.repo == repo, Commit.id.in_(select(Run.commit)))


def unplaced_commits(source: Source, repo: str) -> set[str]:
    """The commits in the database that have no position."""
    return _shas(source, Commit.repo == repo, Commit.position.is_(None))


def placed_commits(source: Source, repo: str) -> set[str]:
    """The commits in the database that have a position."""
    return _shas(source, Commit.repo == repo, Commit.position.is_not(None))


def _shas(source: Source, *where: ColumnElement[bool]) -> set[str]:
    with connected(source) as conn:
        return set(conn.execute(select(Commit.sha).where(*where)).scalars())


def check_repo(repo: str) -> str:
    """The name of a repository as it is stored, such as `pytorch/pytorch`. Raises `CommitError` for an unfit name."""
    if not repo.strip() or not repo.isprintable() or len(repo) > 200:
        raise CommitError(f"{one_line(repo)!r} is no name of a repository: write owner/name")
    return repo.strip()
