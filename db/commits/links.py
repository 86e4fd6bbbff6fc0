"""Which commit takes which back, and which lands which again: from messages to `commit_links`.

Everything here goes by places in the line, never by dates: a commit can only mean what landed before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, Text, bindparam, delete, insert, select, tuple_
from sqlalchemy.orm import aliased

from db.commits.messages import Message, read_subject
from db.commits.staging import staged
from db.schema import Commit, CommitLink

_CHUNK = 200
_AFTER_HEX = "g"

Pair = tuple[int, int]


class Mark(NamedTuple):
    """A commit of the line whose message speaks of others."""

    sha: str
    position: int
    message: Message


class Landing(NamedTuple):
    """A commit on the line, as far as links need it."""

    id: int
    sha: str
    position: int
    pr_number: int | None
    title: str


_COLUMNS = (Commit.id, Commit.sha, Commit.position, Commit.pr_number, Commit.title)


@dataclass(slots=True)
class LinkCounts:
    """Links of the repository after the work, and the shas that could not become one (see `CommitsReport`)."""

    reverts: int = 0
    relands: int = 0
    unknown: int = 0
    ambiguous: int = 0
    misdirected: int = 0
    left_out: int = 0
    changed: bool = False


@dataclass(slots=True)
class _History:
    """The reverts of a repository: what each commit takes back, at which places each was taken back, and all of these."""

    undoes: dict[int, list[Landing]] = field(default_factory=lambda: defaultdict(list))
    undone_at: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    undone: dict[int, Landing] = field(default_factory=dict)
    by_title: dict[str, list[Landing]] = field(default_factory=lambda: defaultdict(list))

    def close(self) -> None:
        """Files what was taken back under its title, in the order of places."""
        for landing in sorted(self.undone.values(), key=lambda landing: landing.position):
            self.by_title[read_subject(landing.title).bare].append(landing)

    def was_undone(self, landing: Landing, before: int) -> bool:
        """Whether a landing had been taken back before that place."""
        return any(position < before for position in self.undone_at.get(landing.id, ()))


def link(conn: Connection, repo: str, marks: Sequence[Mark]) -> LinkCounts:
    """Brings the links of a repository up to date with the messages in `marks`; the staged line is there.

    Links of commits that are not chosen now stay, since their messages were not read.
    """
    counts = LinkCounts()
    numbers = _numbers(conn, repo, [mark.sha for mark in marks])
    reverts = set(_reverts(conn, repo, marks, numbers, counts))
    counts.reverts = _sync(conn, repo, "reverts", reverts, counts)
    relands = set(_relands(conn, repo, marks, numbers))
    counts.relands = _sync(conn, repo, "relands", relands, counts)
    return counts


def _reverts(
    conn: Connection, repo: str, marks: Sequence[Mark], numbers: dict[str, Landing], counts: LinkCounts
) -> Iterator[Pair]:
    meant = _resolve(conn, {text for mark in marks for text in mark.message.reverts})
    targets = _numbers(conn, repo, [shas[0] for shas in meant.values() if len(shas) == 1])
    by_pr = _landings(conn, repo, {pr for mark in marks if (pr := _reverted_pr(mark)) is not None})
    for mark in marks:
        own = numbers[mark.sha].id
        for text in mark.message.reverts:
            target = _target(mark, meant.get(text, []), targets, counts)
            if target is not None:
                yield own, target.id
        if (pr := _reverted_pr(mark)) is not None and (landing := _latest(by_pr[pr], mark.position)):
            yield own, landing.id


def _reverted_pr(mark: Mark) -> int | None:
    """The pull request that a revert takes back, where its message names no commit."""
    subject = mark.message.subject
    return subject.quoted_pr if subject.kind == "revert" and not mark.message.reverts else None


def _target(mark: Mark, shas: list[str], targets: dict[str, Landing], counts: LinkCounts) -> Landing | None:
    if len(shas) != 1:
        counts.unknown += not shas
        counts.ambiguous += len(shas) > 1
        return None
    target = targets.get(shas[0])
    if target is None:
        counts.left_out += 1
        return None
    if target.position >= mark.position:
        counts.misdirected += 1
        return None
    return target


def _relands(conn: Connection, repo: str, marks: Sequence[Mark], numbers: dict[str, Landing]) -> Iterator[Pair]:
    history = _history(conn, repo)
    stated = {mark.message.relands_pr for mark in marks} - {None}
    reverted = {landing.pr_number for landing in history.undone.values()} - {None}
    by_pr = _landings(conn, repo, {pr for pr in stated | reverted if pr is not None})
    found = set(_undone_reverts(history))
    known = {commit for commit, _ in found}
    again = {commit: target for pr in by_pr for commit, target in _same_pr(by_pr[pr], history)}
    for mark in marks:
        own = numbers[mark.sha]
        by_name = mark.message.relands_pr is not None or own.id not in again
        if own.id not in known and by_name and (target := _stated(mark, by_pr, history)):
            again[own.id] = target
    yield from found
    yield from ((commit, target) for commit, target in again.items() if commit not in known)


def _stated(mark: Mark, by_pr: dict[int, list[Landing]], history: _History) -> int | None:
    """The landing that a message says to repeat: by its pull request, else by a title that had been taken back."""
    pr, subject = mark.message.relands_pr, mark.message.subject
    if pr is not None:
        before = by_pr[pr]
    elif subject.kind == "reland":
        before = [one for one in history.by_title.get(subject.bare, ()) if history.was_undone(one, mark.position)]
    else:
        return None
    landing = _latest(before, mark.position)
    return landing.id if landing else None


def _undone_reverts(history: _History) -> Iterator[Pair]:
    """Who takes back a revert lands again what that had taken back."""
    depth: dict[int, int] = {}
    for commit, targets in history.undoes.items():  # in the order of their places
        depth[commit] = 1 + max(depth.get(target.id, 0) for target in targets)
    for commit, targets in history.undoes.items():
        for target in targets:
            landed = (first for first in history.undoes.get(target.id, ()) if not depth.get(first.id, 0) % 2)
            yield from ((commit, first.id) for first in landed)


def _same_pr(landings: list[Landing], history: _History) -> Iterator[Pair]:
    """A pull request that lands once more after it was taken back."""
    for earlier, later in pairwise(landings):
        if history.was_undone(earlier, later.position):
            yield later.id, earlier.id


def _history(conn: Connection, repo: str) -> _History:
    target = aliased(Commit)
    query = (
        select(
            CommitLink.commit, Commit.position, target.id, target.sha, target.position, target.pr_number, target.title
        )
        .join(Commit, Commit.id == CommitLink.commit)
        .join(target, target.id == CommitLink.target)
        .where(Commit.repo == repo, CommitLink.kind == "reverts")
        .where(Commit.position.is_not(None), target.position.is_not(None))
        .order_by(Commit.position, target.position)
    )
    found = _History()
    for row in conn.execute(query):
        position: Any = row[1]
        commit, one = row[0], _landing(row[2:])
        found.undoes[commit].append(one)
        found.undone_at[one.id].append(position)
        found.undone[one.id] = one
    found.close()
    return found


def _landings(conn: Connection, repo: str, prs: Iterable[int]) -> dict[int, list[Landing]]:
    """The landings of each pull request in their order, reverts of its own left out."""
    found: dict[int, list[Landing]] = defaultdict(list)
    for landing in _stored(conn, repo, Commit.pr_number, prs):
        if landing.pr_number is not None and not read_subject(landing.title).undoes_its_own:
            found[landing.pr_number].append(landing)
    for landings in found.values():
        landings.sort(key=lambda landing: landing.position)
    return found


def _latest(landings: Sequence[Landing], before: int) -> Landing | None:
    return next((one for one in reversed(landings) if one.position < before), None)


def _resolve(conn: Connection, texts: Iterable[str]) -> dict[str, list[str]]:
    """The commits of the line that each sha, or beginning of one, could mean; two where there are more."""
    found: dict[str, list[str]] = {}
    begun = []
    for chunk in _chunks(texts):
        whole = set(conn.execute(select(staged.c.sha).where(staged.c.sha.in_(chunk))).scalars())
        found |= {text: [text] for text in whole}
        begun += [text for text in chunk if text not in whole]
    begins = (staged.c.sha >= bindparam("start", type_=Text), staged.c.sha < bindparam("end", type_=Text))
    query = select(staged.c.sha).where(*begins).limit(2)
    for text in begun:
        found[text] = list(conn.execute(query, {"start": text, "end": text + _AFTER_HEX}).scalars())
    return found


def _numbers(conn: Connection, repo: str, shas: Iterable[str]) -> dict[str, Landing]:
    """What is stored of each commit that has a place, by sha."""
    return {landing.sha: landing for landing in _stored(conn, repo, Commit.sha, shas)}


def _stored(conn: Connection, repo: str, column: Any, values: Iterable[Any]) -> Iterator[Landing]:
    """The commits with a place that have one of the values in a column.

    The place is asked for here and not in the query: SQLite would then go through all places instead of the values.
    """
    for chunk in _chunks(values):
        for row in conn.execute(select(*_COLUMNS).where(Commit.repo == repo, column.in_(chunk))):
            if row.position is not None:
                yield _landing(row)


def _landing(values: Iterable[Any]) -> Landing:
    number, sha, position, pr_number, title = values
    return Landing(number, sha, position, pr_number, title or "")


def _sync(conn: Connection, repo: str, kind: str, wanted: set[Pair], counts: LinkCounts) -> int:
    """Adds the links that are missing, and removes those of chosen commits that nothing says any more."""
    chosen = select(staged.c.sha).where(staged.c.sha == Commit.sha, staged.c.chosen).exists()
    query = (
        select(CommitLink.commit, CommitLink.target, chosen)
        .join(Commit, Commit.id == CommitLink.commit)
        .where(Commit.repo == repo, CommitLink.kind == kind)
    )
    there = {(commit, target): bool(was_read) for commit, target, was_read in conn.execute(query)}
    gone = [pair for pair, was_read in there.items() if was_read and pair not in wanted]
    new = sorted(wanted - there.keys())
    for chunk in _chunks(gone):
        pairs = tuple_(CommitLink.commit, CommitLink.target).in_(chunk)
        conn.execute(delete(CommitLink).where(CommitLink.kind == kind, pairs))
    if new:
        conn.execute(insert(CommitLink), [{"commit": one, "kind": kind, "target": other} for one, other in new])
    counts.changed = counts.changed or bool(new or gone)
    return len(there) + len(new) - len(gone)


def _chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(dict.fromkeys(values))
    while chunk := list(islice(left, _CHUNK)):
        yield chunk
