"""The commit at which each branch left the main line, and the commits that the runs of a repository measured."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, update

from db.commits.ranges import CommitEntry, find_commit
from db.connecting import Source, changing, connected
from db.dimensions import branch_key
from db.errors import CommitError, one_line
from db.schema import Branch, Commit, Run
from db.texts import clean


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

    Raises:
        CommitError: the commit is not in the database.
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
    with connected(source) as conn:
        query = select(Commit.sha).distinct().join(Run, Run.commit == Commit.id).where(Commit.repo == repo)
        return set(conn.execute(query).scalars())


def unplaced_commits(source: Source, repo: str) -> set[str]:
    """The commits in the database that have no position."""
    with connected(source) as conn:
        query = select(Commit.sha).where(Commit.repo == repo, Commit.position.is_(None))
        return set(conn.execute(query).scalars())


def check_repo(repo: str) -> str:
    """The name of a repository as it is stored, such as `pytorch/pytorch`. Raises `CommitError` for an unfit name."""
    if not repo.strip() or not repo.isprintable() or len(repo) > 200:
        raise CommitError(f"{one_line(repo)!r} is no name of a repository: write owner/name")
    return repo.strip()
