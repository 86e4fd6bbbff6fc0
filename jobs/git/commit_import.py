"""`commits import`: which commits of a clone go into the database, and where branches left the main line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from db.commits.links import CommitsReport
from db.commits.storing import measured_commits, store_commits, unplaced_commits
from db.errors import CommitError, one_line
from jobs.git.log import GitError, Repository


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to import; `path` and `needed` leave commits out, `replace` lets this line replace the stored one."""

    repo: str
    ref: str
    path: str | None = None
    needed: bool = False
    branches: tuple[str, ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A clone as read before anything is written: its tip, its line, the start of each requested branch, its tags."""

    tip: str
    line: list[str]
    touching: frozenset[str] | None
    starts: dict[str, str]
    tags: dict[str, str]


def read_history(clone: Repository, wanted: Wanted) -> History:
    """Reads everything that can fail before the database is changed.

    Raises:
        GitError: the clone cannot be read, or lacks what is wanted.
    """
    tip = clone.sha_of(wanted.ref)
    starts = {name: clone.merge_base(name, tip) for name in wanted.branches}
    touching = None
    if wanted.path is not None:
        touching = frozenset(clone.touching(tip, wanted.path))
        if not touching:
            raise GitError(
                f"no commit up to {one_line(wanted.ref)} touches {one_line(wanted.path)!r}: --path starts at the root"
            )
    return History(tip, clone.line(tip), touching, starts, clone.tags())


def import_commits(engine: Engine, clone: Repository, wanted: Wanted, history: History) -> CommitsReport:
    """Stores the wanted commits of a history, the starts of branches, and the tags, in one transaction.

    Commits that the database knows already are always stored, so that their facts are git's.

    Raises:
        CommitError: nothing was measured of this line (`needed`), or it is another than the stored one.
    """
    line = history.line
    is_chosen = _choice(engine, wanted, history)
    chosen = ((position, sha) for position, sha in enumerate(line) if is_chosen(position, sha))
    others: Iterator[tuple[int, str]] = iter(())
    if wanted.needed or wanted.path is not None:
        others = ((position, sha) for position, sha in enumerate(line) if not is_chosen(position, sha))
    commits = clone.commits(chosen)
    return store_commits(
        engine, wanted.repo, commits, others, starts=history.starts, tags=history.tags, replace=wanted.replace
    )


def _choice(engine: Engine, wanted: Wanted, history: History) -> Callable[[int, str], bool]:
    if not wanted.needed and history.touching is None:
        return lambda position, sha: True
    known = unplaced_commits(engine, wanted.repo) | set(history.starts.values())
    touching, span = history.touching, range(len(history.line))
    if wanted.needed:
        measured = measured_commits(engine, wanted.repo)
        positions = [position for position, sha in enumerate(history.line) if sha in measured]
        if not positions:
            raise CommitError(
                f"no run in the database measured a commit of {one_line(wanted.ref)}: import without --needed, or"
                " name the line that was measured with --ref"
            )
        known |= measured
        span = range(positions[0], positions[-1] + 1)
    return lambda position, sha: sha in known or (position in span and (touching is None or sha in touching))
