"""From a repository's history to rows: every commit at its place in the line, with what its message tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, and_, exists, func, insert, literal, or_, select, update

from db.changing import changing
from db.commits.branch_starts import put_start
from db.commits.links import Mark, link
from db.commits.messages import read_message
from db.commits.staging import stage, staged, staging
from db.errors import CommitError, one_line
from db.schema import Commit, Tag
from db.tags import put_tags
from db.texts import clean

_FACTS = ("position", "author_date", "committed_at", "title", "pr_number")


class LandedCommit(NamedTuple):
    """A commit as git tells it: its place in the line (0 is the oldest), moments in seconds since 1970, its message."""

    position: int
    sha: str
    author_date: float | None
    committed_at: float | None
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class CommitsReport:
    """What an import brought; all are counts, `reverts`, `relands` and `tags` of what the repository has now.

    Of the shas that messages name `unknown` are on no line that was read, `ambiguous` begin several commits there,
    `misdirected` are the commit itself or a later one, `left_out` are commits that were not imported.
    """

    line: int
    new: int
    updated: int
    unchanged: int
    reverts: int
    relands: int
    unknown: int
    ambiguous: int
    misdirected: int
    left_out: int
    tags: int
    changed: bool


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
    the chosen commit at which it left the line; `tags` are for `db.tags.put_tags`. Git's facts replace what bundles told.
    Commits that an earlier, longer import knows keep their places; where that import's line is another one, and not the
    beginning or the continuation of this, nothing is done, unless `replace` says that the earlier line counts no longer.

    Raises:
        CommitError: the lines contradict each other.
        StoreError: the database cannot be written. Nothing is half-written.
    """
    marks: list[Mark] = []
    with changing(target) as change, staging(change.conn):
        stage(change.conn, _rows(chosen, others, marks))
        size = change.conn.execute(select(func.count()).select_from(staged)).scalar_one()
        cleared = _settle_line(change.conn, repo, size, replace)
        moved = _move(change.conn, repo)
        updated, new = _update(change.conn, repo), _insert(change.conn, repo)
        links = link(change.conn, repo, marks)
        started = [put_start(change.conn, repo, name, sha) for name, sha in (starts or {}).items()]
        named = put_tags(change.conn, repo, tags or {})
        change.made = bool(cleared or moved or updated or new or links.changed or named or any(started))
        asked = change.conn.execute(select(func.count()).where(staged.c.chosen)).scalar_one()
        return CommitsReport(
            line=size,
            new=new,
            updated=updated,
            unchanged=asked - new - updated,
            reverts=links.reverts,
            relands=links.relands,
            unknown=links.unknown,
            ambiguous=links.ambiguous,
            misdirected=links.misdirected,
            left_out=links.left_out,
            tags=change.conn.execute(select(func.count()).where(Tag.repo == repo)).scalar_one(),
            changed=change.made,
        )


def _rows(
    chosen: Iterable[LandedCommit], others: Iterable[tuple[int, str]], marks: list[Mark]
) -> Iterator[tuple[Any, ...]]:
    """Rows to stage; what a message says about other commits goes to `marks` on the way."""
    for position, sha in others:
        yield sha, position, False, None, None, None, None
    for commit in chosen:
        subject = clean(commit.subject)
        message = read_message(subject, commit.message)
        if message.tells_of_others:
            marks.append(Mark(commit.sha, commit.position, message))
        dates = commit.author_date, commit.committed_at
        yield commit.sha, commit.position, True, *dates, subject, message.subject.pr_number


def _settle_line(conn: Connection, repo: str, size: int, replace: bool) -> int:
    """Sees that the stored line and this one are one; the count of commits that lost their place because they are not."""
    on_line = exists().where(staged.c.sha == Commit.sha)
    strays = (Commit.repo == repo, Commit.position.is_not(None), ~on_line)
    first, count = conn.execute(select(func.min(Commit.position), func.count()).where(*strays)).one()
    if first is None or (first >= size and not _moved(conn, repo)):
        return 0  # what is not on this line comes after its end: this is an older state of the same one
    if not replace:
        at = select(Commit.sha, Commit.title).where(*strays).order_by(Commit.position).limit(1)
        sha, title = conn.execute(at).one()
        raise CommitError(
            f"{one_line(repo)}: {count} commits of an earlier import are not in this history, the first is"
            f" {sha[:12]} {one_line(title or '', 50)!r}: name the main line with --ref, or say --replace where it was rewritten"
        )
    conn.execute(update(Commit).where(*strays).values(position=None))
    return int(count)


def _on_line(repo: str) -> ColumnElement[bool]:
    return and_(Commit.repo == repo, Commit.sha == staged.c.sha)


def _moved(conn: Connection, repo: str) -> bool:
    moved = Commit.position != staged.c.position
    return conn.execute(select(Commit.id).where(_on_line(repo), moved).limit(1)).first() is not None


def _move(conn: Connection, repo: str) -> int:
    """Stored commits that are not chosen now, but have another place."""
    where = (_on_line(repo), ~staged.c.chosen, Commit.position != staged.c.position)
    return conn.execute(update(Commit).where(*where).values(position=staged.c.position)).rowcount


def _update(conn: Connection, repo: str) -> int:
    differs = or_(*(getattr(Commit, name).is_distinct_from(staged.c[name]) for name in _FACTS))
    values = {name: staged.c[name] for name in _FACTS}
    return conn.execute(update(Commit).where(_on_line(repo), staged.c.chosen, differs).values(values)).rowcount


def _insert(conn: Connection, repo: str) -> int:
    known = exists().where(Commit.repo == repo, Commit.sha == staged.c.sha)
    columns = ("sha", *_FACTS)
    rows = select(literal(repo).label("repo"), *(staged.c[name] for name in columns))
    rows = rows.where(staged.c.chosen, ~known)  # staged in their order: no need to sort
    new = insert(Commit).from_select(["repo", *columns], rows)
    return conn.execute(new, execution_options={"preserve_rowcount": True}).rowcount
