"""Which commit reverts which, and which lands which again: from messages to `commit_links`.

All of it goes by positions in the line, never by dates: a commit can only mean what landed before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, tuple_

from db.commits.messages import Message, read_subject
from db.connecting import chunks
from db.schema import Commit, CommitLink

Pair = tuple[int, int]


class Mark(NamedTuple):
    """A commit of the line whose message speaks of others."""

    sha: str
    position: int
    message: Message


class Landing(NamedTuple):
    """A stored commit on the line, as far as links need it."""

    id: int
    sha: str
    position: int
    pr_number: int | None
    title: str


@dataclass(slots=True)
class CommitsReport:
    """The result of an import; all are counts, `reverts`, `relands` and `tags` of what the repository has now.

    Of the shas that messages name `unknown` are on no line that was read, `ambiguous` begin several commits there,
    `misdirected` are the commit itself or a later one, `left_out` are commits that were not imported.
    """

    line: int = 0
    new: int = 0
    updated: int = 0
    unchanged: int = 0
    reverts: int = 0
    relands: int = 0
    unknown: int = 0
    ambiguous: int = 0
    misdirected: int = 0
    left_out: int = 0
    tags: int = 0
    changed: bool = False


def link(
    conn: Connection,
    repo: str,
    marks: Sequence[Mark],
    line: Collection[str],
    chosen: Collection[str],
    report: CommitsReport,
) -> None:
    """Updates the links of a repository from the messages in `marks`; `line` has all shas of the line that was read.

    Links of commits that are not `chosen` stay, since their messages were not read. The counts go into `report`.
    """
    landings = _Landings(conn, repo)
    reverts = set(_reverts(marks, landings, line, report))
    report.reverts = _sync(conn, landings, "reverts", reverts, chosen, report)
    relands = set(_relands(marks, landings, _Reverts(conn, landings)))
    report.relands = _sync(conn, landings, "relands", relands, chosen, report)


class _Landings:
    """The stored commits of a repository that have a position, by id, by sha and by pull request."""

    def __init__(self, conn: Connection, repo: str) -> None:
        self.repo = repo
        columns = (Commit.id, Commit.sha, Commit.position, Commit.pr_number, Commit.title)
        query = select(*columns).where(Commit.repo == repo, Commit.position.is_not(None)).order_by(Commit.position)
        landings = (
            Landing(row.id, row.sha, row.position, row.pr_number, row.title or "") for row in conn.execute(query)
        )
        self.by_id = {landing.id: landing for landing in landings}
        self.by_sha = {landing.sha: landing for landing in self.by_id.values()}

    @cached_property
    def by_pr(self) -> dict[int, list[Landing]]:
        """The landings of each pull request in their order, without reverts of its own."""
        by_pr: dict[int, list[Landing]] = defaultdict(list)
        for landing in self.by_id.values():
            if landing.pr_number is not None and not read_subject(landing.title).undoes_its_own:
                by_pr[landing.pr_number].append(landing)
        return by_pr


class _Reverts:
    """The reverts of a repository: the commits that each one takes back, and the positions where each was taken back."""

    def __init__(self, conn: Connection, landings: _Landings) -> None:
        pairs = [
            (landings.by_id[commit], landings.by_id[target])
            for commit, target in _links(conn, landings.repo, "reverts")
            if commit in landings.by_id and target in landings.by_id
        ]
        self.targets: dict[int, list[Landing]] = defaultdict(list)
        self.reverted_at: dict[int, list[int]] = defaultdict(list)
        for commit, target in sorted(pairs, key=lambda pair: (pair[0].position, pair[1].position)):
            self.targets[commit.id].append(target)
            self.reverted_at[target.id].append(commit.position)
        self.by_title: dict[str, list[Landing]] = defaultdict(list)
        for key in sorted(self.reverted_at, key=lambda key: landings.by_id[key].position):
            self.by_title[read_subject(landings.by_id[key].title).bare].append(landings.by_id[key])

    def was_reverted(self, landing: Landing, before: int) -> bool:
        """Whether a landing had been taken back before that position."""
        return any(position < before for position in self.reverted_at.get(landing.id, ()))


def _links(conn: Connection, repo: str, kind: str) -> set[Pair]:
    query = select(CommitLink.commit, CommitLink.target).join(Commit, Commit.id == CommitLink.commit)
    return {(row.commit, row.target) for row in conn.execute(query.where(Commit.repo == repo, CommitLink.kind == kind))}


def _reverts(
    marks: Sequence[Mark], landings: _Landings, line: Collection[str], report: CommitsReport
) -> Iterator[Pair]:
    shas = sorted(line)
    for mark in marks:
        own, subject = landings.by_sha[mark.sha].id, mark.message.subject
        for text in mark.message.reverts:
            if target := _target(mark, _beginning_with(shas, text), landings, report):
                yield own, target.id
        # A revert whose message names no commit means the last landing of the pull request that it quotes.
        quoted = subject.quoted_pr if subject.kind == "revert" and not mark.message.reverts else None
        if landing := _latest(landings.by_pr.get(quoted or 0, ()), mark.position):
            yield own, landing.id


def _beginning_with(shas: Sequence[str], text: str) -> list[str]:
    """The commits that a sha, or the beginning of one, could mean; two where there are more."""
    start = bisect_left(shas, text)
    return [sha for sha in shas[start : start + 2] if sha.startswith(text)]


def _target(mark: Mark, shas: Sequence[str], landings: _Landings, report: CommitsReport) -> Landing | None:
    if len(shas) != 1:
        report.unknown += not shas
        report.ambiguous += len(shas) > 1
        return None
    target = landings.by_sha.get(shas[0])
    if target is None:
        report.left_out += 1
    elif target.position >= mark.position:
        report.misdirected += 1
        return None
    return target


def _relands(marks: Sequence[Mark], landings: _Landings, reverts: _Reverts) -> Iterator[Pair]:
    by_revert = set(_reverted_reverts(reverts))
    known = {commit for commit, _ in by_revert}
    stated = {mark.message.relands_pr for mark in marks}
    reverted = {landings.by_id[key].pr_number for key in reverts.reverted_at}
    again: dict[int, int] = {}
    for pr in stated | reverted:
        again |= dict(_same_pr(landings.by_pr.get(pr or 0, ()), reverts))
    for mark in marks:
        own = landings.by_sha[mark.sha].id
        by_name = mark.message.relands_pr is not None or own not in again
        if own not in known and by_name and (target := _stated(mark, landings, reverts)):
            again[own] = target.id
    yield from by_revert
    yield from ((commit, target) for commit, target in again.items() if commit not in known)


def _stated(mark: Mark, landings: _Landings, reverts: _Reverts) -> Landing | None:
    """The landing that a message says to repeat: by its pull request, else by a title that had been taken back."""
    pr, subject = mark.message.relands_pr, mark.message.subject
    if pr is not None:
        return _latest(landings.by_pr.get(pr, ()), mark.position)
    if subject.kind != "reland":
        return None
    reverted = [one for one in reverts.by_title.get(subject.bare, ()) if reverts.was_reverted(one, mark.position)]
    return _latest(reverted, mark.position)


def _reverted_reverts(reverts: _Reverts) -> Iterator[Pair]:
    """A commit that takes back a revert lands again what that had taken back."""
    depth: dict[int, int] = {}
    for commit, targets in reverts.targets.items():  # in the order of their positions
        depth[commit] = 1 + max(depth.get(target.id, 0) for target in targets)
    for commit, targets in reverts.targets.items():
        for target in targets:
            landed = (first for first in reverts.targets.get(target.id, ()) if not depth.get(first.id, 0) % 2)
            yield from ((commit, first.id) for first in landed)


def _same_pr(landings: Sequence[Landing], reverts: _Reverts) -> Iterator[Pair]:
    """A pull request that lands once more after it was taken back."""
    for earlier, later in pairwise(landings):
        if reverts.was_reverted(earlier, later.position):
            yield later.id, earlier.id


def _latest(landings: Sequence[Landing], before: int) -> Landing | None:
    return next((one for one in reversed(landings) if one.position < before), None)


def _sync(
    conn: Connection, landings: _Landings, kind: str, wanted: set[Pair], chosen: Collection[str], report: CommitsReport
) -> int:
    """Adds missing links, removes those of chosen commits that no message supports any more, and returns their number."""
    there = _links(conn, landings.repo, kind)
    gone = [pair for pair in there - wanted if pair[0] in landings.by_id and landings.by_id[pair[0]].sha in chosen]
    for some in chunks(gone):
        pairs = tuple_(CommitLink.commit, CommitLink.target).in_(some)
        conn.execute(delete(CommitLink).where(CommitLink.kind == kind, pairs))
    if new := sorted(wanted - there):
        conn.execute(insert(CommitLink), [{"commit": one, "kind": kind, "target": other} for one, other in new])
    report.changed = report.changed or bool(new or gone)
    return len(there) + len(new) - len(gone)
