"""Links between commits that revert or reland each other: read from commit messages, stored in `commit_links`.

The forms are those of PyTorch's merge bot, of `git revert` and of GitHub: a subject that ends with its pull request in
brackets, the subject of another commit in quotes after "Revert", "Reapply", "Reland" or "Back out", and
"This reverts commit <sha>." in the text.

Commits are ordered by their positions in the line, never by dates: a message can only mean a commit that landed before.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, tuple_

from db.connecting import chunks
from db.schema import Commit, CommitLink

#: `plain` lands a change, `revert` reverts one, `reland` lands a reverted one again.
MessageKind = Literal["plain", "revert", "reland"]

#: At most nine digits, which fit an integer column of every database.
_NUMBER = r"\(#([1-9][0-9]{0,8})\)"
_OWN = re.compile(rf"{_NUMBER}\s*$")
_QUOTED_OWN = re.compile(rf"{_NUMBER}[\s\"'.…]*$")
_MERGE = re.compile(r"Merge pull request #([1-9][0-9]{0,8})\b")
_QUOTING = re.compile(
    r"(?:\[[^\]]{0,40}\]\s*)*(revert|back[ -]?(?:ed )?out|re-?apply|re-?land)(?:\s+of)?\s*:?\s*\"", re.IGNORECASE
)
_TAG = re.compile(r"^(?:\[[^\]]{0,40}\]\s*)*?\[\s*(?:re-?land(?:ing|ed)?|re-?apply)\b[^\]]{0,40}\]", re.IGNORECASE)
_TAGS = re.compile(r"^(?:\[[^\]]{0,40}\]\s*)+")
_RELAND_TAG = re.compile(r"\[\s*re-?(?:land|apply)[^\]]{0,40}\]", re.IGNORECASE)
_LEADING_WORD = re.compile(r"^re-?(?:land|apply)(?:\s+of)?\s*:?\s+", re.IGNORECASE)
_BACK_OUT = re.compile(r"(?:\[[^\]]{0,40}\]\s*)*back[ -]?(?:ed )?out\b", re.IGNORECASE)
_RELAND = re.compile(r"(?:\[[^\]]{0,40}\]\s*)*re-?(?:land|apply)\b", re.IGNORECASE)
_SHA = r"`?\b[0-9a-f]{7,64}\b`?"
_REVERTS = re.compile(rf"this reverts commits?:?\s+({_SHA}(?:(?:\s*,\s*|\s+)(?:and\s+)?{_SHA})*)")
_CHANGESET = re.compile(rf"original commit changeset:\s*({_SHA})")
_DIGITS = re.compile(r"[0-9a-f]{7,64}")
_RELANDS = re.compile(
    r"\bre-?land(?:s|ing)?(?:\s+of)?:?\s+(?:of\s+)?(?:the\s+)?(?:pr\s+)?"
    r"(?:#|https://github\.com/[\w.-]{1,100}/[\w.-]{1,100}/pull/)([1-9][0-9]{0,8})\b"
)
_WORDS = ("revert", "land", "apply", "back")
#: The most reverted commits that are read from one message.
_MOST = 100


@dataclass(frozen=True, slots=True)
class Subject:
    """A parsed subject. `pr_number` is the pull request at its end, `quoted_pr` the pull request of the commit that it quotes.

    The bot's revert has no pull request of its own: `pr_number` is then the one that it reverts. `title` is the
    innermost quoted subject, or the whole subject.
    """

    kind: MessageKind
    pr_number: int | None
    quoted_pr: int | None
    title: str

    @property
    def undoes_its_own(self) -> bool:
        """Return whether the commit reverts `pr_number` instead of landing it."""
        return self.kind == "revert" and self.pr_number is not None and self.pr_number == self.quoted_pr

    @property
    def bare(self) -> str:
        """The title of the change itself, in lower case, without numbers and tags that say "reland"."""
        without = _LEADING_WORD.sub("", _TAGS.sub(lambda tags: _RELAND_TAG.sub("", tags[0]), self.title))
        return " ".join(re.sub(_NUMBER, " ", without).replace("]", "] ").split()).lower()


@dataclass(frozen=True, slots=True)
class Message:
    """A parsed message: the shas that it reverts, as written but in lower case, and the pull request that it lands again."""

    subject: Subject
    reverts: tuple[str, ...]
    relands_pr: int | None

    @property
    def tells_of_others(self) -> bool:
        """Return whether the message refers to another commit at all."""
        return self.subject.kind != "plain" or bool(self.reverts) or self.relands_pr is not None


def read_subject(subject: str) -> Subject:
    """Parse the first line of a message."""
    subject = " ".join(subject.split())
    lowered = subject.lower()
    # Most commits refer to no other.
    kind, quoted = _unquote(subject) if any(word in lowered for word in _WORDS) else ("plain", None)
    own = _OWN.search(subject) or _MERGE.match(subject)
    inner = _QUOTED_OWN.search(quoted) if quoted is not None else None
    quoted_pr = int(inner[1]) if inner else None
    return Subject(kind, int(own[1]) if own else quoted_pr, quoted_pr, quoted or subject)


def read_message(subject: str, message: str) -> Message:
    """Parse a subject and the whole message."""
    read, lowered = read_subject(subject), message.lower()
    shas: list[str] = []
    if "reverts commit" in lowered:
        shas += [sha for match in _REVERTS.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    if read.kind == "revert" and _BACK_OUT.match(subject):
        shas += [sha for match in _CHANGESET.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    stated = _RELANDS.search(lowered) if read.kind != "revert" and "land" in lowered else None
    relands = int(stated[1]) if stated else read.quoted_pr if read.kind == "reland" else None
    return Message(read, tuple(dict.fromkeys(shas))[:_MOST], relands)


def _unquote(subject: str) -> tuple[MessageKind, str | None]:
    """Return the kind of a subject, and the innermost subject that it quotes: a revert of a revert lands again."""
    undone, relands, rest, quoted = 0, False, subject, None
    while match := _QUOTING.match(rest):
        word = match[1].lower()
        undone, relands = (undone + 1, relands) if word.startswith(("revert", "back")) else (undone, True)
        end = rest.rfind('"')
        rest = quoted = rest[match.end() : end] if end >= match.end() else rest[match.end() :]
    if quoted is None and _BACK_OUT.match(subject):
        return "revert", None
    if quoted is None:
        return ("reland" if _TAG.match(subject) or _RELAND.match(subject) else "plain"), None
    # The reverted commit may itself be a reland: "Revert "Reapply "x""" takes x back.
    return ("revert" if undone % 2 else "reland" if relands or undone else "plain"), quoted


Pair = tuple[int, int]


class Mark(NamedTuple):
    """A commit of the line whose message refers to other commits."""

    sha: str
    position: int
    message: Message


@dataclass(slots=True)
class CommitsReport:
    """The counts of an import. `reverts`, `relands` and `tags` count all that the repository has now.

    Of the shas that messages name, `unknown` counts those of no commit in the line, `ambiguous` those that begin several,
    `misdirected` those of the commit itself or a later one, `left_out` those of commits that were not imported. `changed` says
    whether any link was added or removed, or a commit or tag changed.
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
    """Update the links of a repository from the messages in `marks`; `line` has all shas of the line that was read.

    Links of commits that are not `chosen` stay, since their messages were not read. The counts go into `report`.
    """
    stored = _Line(conn, repo)
    reverts = set(_reverts(marks, stored, line, report))
    report.reverts = _sync(conn, stored, "reverts", reverts, chosen, report)
    stored.read_reverts(conn)
    report.relands = _sync(conn, stored, "relands", set(_relands(marks, stored)), chosen, report)


class _Line:
    """The stored commits of a repository that have a position, and the commits that the reverts among them take back.

    A commit is a row with id, sha, position, pr_number and title.
    """

    def __init__(self, conn: Connection, repo: str) -> None:
        self.repo = repo
        query = select(Commit.id, Commit.sha, Commit.position, Commit.pr_number)
        query = query.add_columns(func.coalesce(Commit.title, "").label("title")).order_by(Commit.position)
        query = query.where(Commit.repo == repo, Commit.position.is_not(None))
        self.by_id = {commit.id: commit for commit in conn.execute(query)}
        self.by_sha = {commit.sha: commit for commit in self.by_id.values()}
        #: By commit id: the commits that a revert takes back, and the positions at which a commit was taken back.
        self.targets: dict[int, list[Any]] = defaultdict(list)
        self.reverted_at: dict[int, list[int]] = defaultdict(list)

    def read_reverts(self, conn: Connection) -> None:
        """Fill `targets` and `reverted_at`, in the order of the positions."""
        links = [link for link in _links(conn, self.repo, "reverts") if {*link} <= self.by_id.keys()]
        pairs = [(self.by_id[commit], self.by_id[target]) for commit, target in links]
        for commit, target in sorted(pairs, key=lambda pair: (pair[0].position, pair[1].position)):
            self.targets[commit.id].append(target)
            self.reverted_at[target.id].append(commit.position)

    @cached_property
    def by_pr(self) -> dict[int | None, list[Any]]:
        """The landings of each pull request in their order, without its reverts."""
        by_pr: dict[int | None, list[Any]] = defaultdict(list)
        for commit in self.by_id.values():
            if commit.pr_number is not None and not read_subject(commit.title).undoes_its_own:
                by_pr[commit.pr_number].append(commit)
        return by_pr

    @cached_property
    def reverted_titles(self) -> dict[str, list[Any]]:
        """The commits that were taken back, by their bare titles and in their order."""
        by_title: dict[str, list[Any]] = defaultdict(list)
        for commit in sorted(map(self.by_id.__getitem__, self.reverted_at), key=lambda commit: commit.position):
            by_title[read_subject(commit.title).bare].append(commit)
        return by_title

    def was_reverted(self, commit: Any, before: int) -> bool:
        """Return whether a commit had been taken back before that position."""
        return any(position < before for position in self.reverted_at.get(commit.id, ()))


def _links(conn: Connection, repo: str, kind: str) -> set[Pair]:
    query = select(CommitLink.commit, CommitLink.target).join(Commit, Commit.id == CommitLink.commit)
    return {(row.commit, row.target) for row in conn.execute(query.where(Commit.repo == repo, CommitLink.kind == kind))}


def _reverts(marks: Sequence[Mark], line: _Line, known: Collection[str], report: CommitsReport) -> Iterator[Pair]:
    shas = sorted(known)
    for mark in marks:
        own, subject = line.by_sha[mark.sha].id, mark.message.subject
        for text in mark.message.reverts:
            if (target := _target(mark, shas, text, line, report)) is not None:
                yield own, target.id
        # A revert whose message names no commit means the last landing of the pull request that it quotes.
        quoted = line.by_pr.get(subject.quoted_pr, ()) if subject.kind == "revert" and not mark.message.reverts else ()
        if (landing := _latest(quoted, mark.position)) is not None:
            yield own, landing.id


def _target(mark: Mark, shas: Sequence[str], text: str, line: _Line, report: CommitsReport) -> Any:
    """Return the stored commit that a sha, or the beginning of one, means in the message of `mark`.

    None if there is no such commit, or several, or none that landed before `mark`. Each of these cases is counted in `report`.
    """
    start = bisect_left(shas, text)
    meant = [sha for sha in shas[start : start + 2] if sha.startswith(text)]
    if len(meant) != 1:
        report.unknown += not meant
        report.ambiguous += len(meant) > 1
        return None
    target = line.by_sha.get(meant[0])
    if target is None:
        report.left_out += 1
    elif target.position >= mark.position:
        report.misdirected += 1
        return None
    return target


def _relands(marks: Sequence[Mark], line: _Line) -> Iterator[Pair]:
    by_revert = set(_reverted_reverts(line))
    known = {commit for commit, _ in by_revert}
    again: dict[int, int] = {}
    for pr in {mark.message.relands_pr for mark in marks} | {line.by_id[key].pr_number for key in line.reverted_at}:
        # A pull request that lands once more after it was taken back.
        for earlier, later in pairwise(line.by_pr.get(pr, ())):
            if line.was_reverted(earlier, later.position):
                again[later.id] = earlier.id
    for mark in marks:
        own = line.by_sha[mark.sha].id
        by_name = mark.message.relands_pr is not None or own not in again
        if own not in known and by_name and (target := _stated(mark, line)) is not None:
            again[own] = target.id
    yield from by_revert
    yield from ((commit, target) for commit, target in again.items() if commit not in known)


def _stated(mark: Mark, line: _Line) -> Any:
    """Return the commit that a message says to repeat: by its pull request, else by a title that had been taken back; or None."""
    pr, subject = mark.message.relands_pr, mark.message.subject
    if pr is not None:
        return _latest(line.by_pr.get(pr, ()), mark.position)
    if subject.kind != "reland":
        return None
    titled = line.reverted_titles.get(subject.bare, ())
    return _latest([one for one in titled if line.was_reverted(one, mark.position)], mark.position)


def _reverted_reverts(line: _Line) -> Iterator[Pair]:
    """Yield links for commits that take back a revert: they land again the commits that it had taken back."""
    depth: dict[int, int] = {}
    for commit, targets in line.targets.items():  # in the order of their positions
        depth[commit] = 1 + max(depth.get(target.id, 0) for target in targets)
    for commit, targets in line.targets.items():
        for target in targets:
            landed = (first for first in line.targets.get(target.id, ()) if not depth.get(first.id, 0) % 2)
            yield from ((commit, first.id) for first in landed)


def _latest(commits: Sequence[Any], before: int) -> Any:
    return next((one for one in reversed(commits) if one.position < before), None)


def _sync(
    conn: Connection, line: _Line, kind: str, wanted: set[Pair], chosen: Collection[str], report: CommitsReport
) -> int:
    """Add missing links, delete links of chosen commits that no message supports any more, and return the number of all links."""
    there = _links(conn, line.repo, kind)
    gone = [pair for pair in there - wanted if pair[0] in line.by_id and line.by_id[pair[0]].sha in chosen]
    for some in chunks(gone):
        pairs = tuple_(CommitLink.commit, CommitLink.target).in_(some)
        conn.execute(delete(CommitLink).where(CommitLink.kind == kind, pairs))
    if new := sorted(wanted - there):
        conn.execute(insert(CommitLink), [{"commit": one, "kind": kind, "target": other} for one, other in new])
    report.changed = report.changed or bool(new or gone)
    return len(there) + len(new) - len(gone)
