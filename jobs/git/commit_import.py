"""`commits import`: which commits of a clone go into the database, and where branches left the main line."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import Engine

from collector.errors import ExpectedError
from db.commits.links import CommitsReport
from db.commits.storing import measured_commits, placed_commits, store_commits, unplaced_commits
from db.engine import open_store
from db.store_errors import one_line
from jobs.git.log import GitError, Repository


@dataclass(frozen=True, slots=True)
class History:
    """A clone as read before anything is written: its tip, its line, the start of each requested branch, its tags.

    `touching` are the commits that touch the requested path, or None without one.
    """

    clone: Repository
    repo: str
    ref: str
    tip: str
    line: list[str]
    touching: set[str] | None
    starts: dict[str, str]
    tags: dict[str, str]

    def store(self, engine: Engine, *, around: Collection[str] = (), replace: bool = False) -> CommitsReport:
        """Stores the commits of the line, starts of branches and tags, in one transaction.

        Commits that the database knows already are always stored, so that their facts are git's. With `around` only these
        commits of the line are stored besides, and what landed between each and the next measured ones. `replace` lets
        this line replace the stored one.

        Raises:
            CommitError: the line is another than the stored one.
        """
        chosen = set(self.line)
        if around:
            chosen = self._around(engine, around)
        elif self.touching is not None:
            chosen = self.touching | unplaced_commits(engine, self.repo) | set(self.starts.values())
        wanted = ((position, sha) for position, sha in enumerate(self.line) if sha in chosen)
        others = ((position, sha) for position, sha in enumerate(self.line) if sha not in chosen)
        commits = self.clone.commits(wanted)
        return store_commits(engine, self.repo, commits, others, starts=self.starts, tags=self.tags, replace=replace)

    def _around(self, engine: Engine, shas: Collection[str]) -> set[str]:
        measured = measured_commits(engine, self.repo)
        places = [index for index, sha in enumerate(self.line) if sha in measured or sha in shas]
        chosen = unplaced_commits(engine, self.repo) | measured | set(self.starts.values())
        for number, place in enumerate(places):
            if self.line[place] in shas:
                chosen.update(self.line[places[max(number - 1, 0)] : places[min(number + 1, len(places) - 1)] + 1])
        return chosen


def import_around(database: str, clone: Repository, repo: str, refs: Iterable[str], branch: str) -> str:
    """Stores what a blame range of these commits of a clone needs, and where their branch left the main line.

    Reads nothing but their places where an earlier import placed them. Returns what was done, or why nothing could be, in
    a line: a run does not need its commits.
    """
    try:
        tip = clone.sha_of(clone.main_ref())
        starts = {sha: clone.merge_base(sha, tip) for sha in map(clone.sha_of, refs)}
        engine = open_store(database, write=True)
        if placed_commits(engine, repo).issuperset(starts.values()):
            return ""
        history = read_history(clone, repo)
        if branch and (left := [start for sha, start in starts.items() if start != sha]):
            history.starts[branch] = left[-1]
        report = history.store(engine, around=set(starts.values()))
    except ExpectedError as error:
        return f"commits are not imported: {error}"
    return f"commits: {report.new + report.updated} of {history.ref} imported"


def read_history(
    clone: Repository, repo: str, ref: str | None = None, path: str | None = None, branches: tuple[str, ...] = ()
) -> History:
    """Reads everything that can fail before the database is changed; without a ref the main line.

    Raises:
        GitError: the clone cannot be read, or lacks what is wanted.
    """
    ref = ref or clone.main_ref()
    tip = clone.sha_of(ref)
    starts = {name: clone.merge_base(name, tip) for name in branches}
    touching = None if path is None else clone.touching(tip, path)
    if path is not None and not touching:
        raise GitError(f"no commit up to {one_line(ref)} touches {one_line(path)!r}: --path starts at the root")
    return History(clone, repo, ref, tip, clone.line(tip), touching, starts, clone.tags())
