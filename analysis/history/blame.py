"""Which commits a change can come from: those that landed between the last one measured before and the first one after."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from analysis.history.changes import Span
from db.commits.ranges import CommitEntry, commits_between, find_commit
from db.connecting import Source
from db.errors import CommitError


@dataclass(frozen=True, slots=True)
class BlameRange:
    """What landed after the last commit measured before, up to and with the first one measured after, oldest first.

    `distance` is how many commits that is in the whole history, None where no import told their places: `commits` is then
    the first one measured after alone, if the database has heard of it. It also has fewer where an import left some out.
    """

    base: str
    onset: str
    distance: int | None
    commits: tuple[CommitEntry, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every suspect is named."""
        return self.distance == len(self.commits)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            "base": self.base,
            "onset": self.onset,
            "distance": self.distance,
            "commits": [commit_json(entry) for entry in self.commits],
        }


def blame_range(source: Source, repo: str, span: Span) -> BlameRange:
    """The suspects of a change, in the order of the repository, with titles, pull requests, reverts and relands where known.

    None at all where both sides measured one commit: then something else changed.
    """
    base, onset = span.base, span.onset
    if span.is_one_commit:
        return BlameRange(base.commit, onset.commit, 0, ())
    if base.position is None or onset.position is None:
        with suppress(CommitError):
            return BlameRange(base.commit, onset.commit, None, (find_commit(source, onset.commit, repo),))
        return BlameRange(base.commit, onset.commit, None, ())
    commits = commits_between(source, repo, base.position, onset.position)
    return BlameRange(base.commit, onset.commit, onset.position - base.position, commits)


def commit_json(entry: CommitEntry) -> dict[str, Any]:
    """A commit as a JSON object with stable keys."""
    links = ("reverts", "reverted_by", "relands", "relanded_by")
    return {
        **{name: getattr(entry, name) for name in ("sha", "title", "pr_number", "position")},
        "committed_at": entry.committed_at.isoformat() if entry.committed_at else None,
        **{name: list(getattr(entry, name)) for name in links},
    }
