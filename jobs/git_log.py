"""Read a repository's history with git: the line of its commits, and the commits that go into the database.

Git runs without hooks, pager and signature checks, and without the variables of this process's own repository. Every name that
a user gave is turned into a sha or a literal path before it is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sqlalchemy import Engine

from collector.usage_errors import ExpectedError
from db.commits.commit_history import LandedCommit, measured_commits, placed_commits, store_commits, unplaced_commits
from db.commits.links import CommitsReport
from db.engine import open_store
from db.store_errors import one_line

#: Candidates for the main line if none is named; the first ref that exists is taken.
MAIN_REFS = ("origin/main", "main", "origin/master", "master", "HEAD")

_GIT = ("git", "--no-pager", "--no-replace-objects", "-c", "log.showSignature=false", "-c", "core.fsmonitor=false")
_FORMAT = "%H%x00%at%x00%ct%x00%s%x00%B"
_FIELDS = 5
#: The number of commits that are read at once.
_BATCH = 5000
#: The latest moment that `db.stored_values` takes, in seconds since 1970.
_LATEST = 9e9


class GitError(ExpectedError):
    """An error for a repository that cannot be read; its text is one line that says why and what to do."""


class Repository:
    """A clone that is only read. Every method raises `GitError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise GitError(f"{_shown(path)}: no such folder: --git takes the path of a clone")
        self._first_line("rev-parse", "--git-dir")

    def main_ref(self) -> str:
        """Return the ref of the main line."""
        for ref in MAIN_REFS:
            if self._find(ref) is not None:
                return ref
        raise GitError(f"{_shown(self.path)} has none of {', '.join(MAIN_REFS)}: name the main line with --ref")

    def sha_of(self, ref: str) -> str:
        """Resolve a branch, tag or sha to the sha of its commit."""
        if (sha := self._find(ref)) is None:
            raise GitError(f"{_shown(self.path)} has no commit {one_line(ref)!r}: name a branch, tag or sha of it")
        return sha

    def branch_of(self, ref: str) -> str:
        """Return the branch that a ref names; for any other ref the branch that is checked out, empty if there is none."""
        if any(self._find(f"refs/{kind}/{ref}") for kind in ("heads", "remotes")):
            return ref.removeprefix("origin/")
        try:
            return self._first_line("symbolic-ref", "--quiet", "--short", "HEAD")
        except GitError:
            return ""

    def working_tree(self) -> str:
        """Write the working tree, with untracked files that are not ignored, and return its tree. The index does not change."""
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder, "index")
            shutil.copyfile(self.path / self._first_line("rev-parse", "--git-path", "index"), index)
            self._git("add", "--all", "--", ":/", GIT_INDEX_FILE=str(index))
            return self._git("write-tree", GIT_INDEX_FILE=str(index)).decode().strip()

    def changed(self, base: str, tree: str) -> dict[str, str | None]:
        """Return the files that differ between two commits or trees, with the second one's blob, or None if it lacks the file."""
        fields = self._git("diff-tree", "-r", "-z", "--no-abbrev", "--no-renames", base, tree).decode().split("\0")[:-1]
        entries = zip(fields[::2], fields[1::2], strict=True)  # ":MODE MODE BLOB BLOB STATUS", path
        return {path: None if entry.endswith("D") else entry.split()[3] for entry, path in entries}

    def contents(self, blobs: Sequence[str]) -> list[bytes]:
        """Return the contents of blobs, in their order."""
        data, contents = self._git("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in blobs).encode()), []
        for blob in blobs:
            header, _, data = data.partition(b"\n")
            if not header.startswith(f"{blob} blob ".encode()):
                raise GitError(f"{_shown(self.path)} lacks the content of {blob}: run `git fetch --refetch` in it")
            size = int(header.split()[2])
            contents.append(data[:size])
            data = data[size + 1 :]
        return contents

    def tags(self) -> dict[str, str]:
        """Return, by the name of each tag, the whole sha of its commit; leave out tags of files and trees."""
        names = self._lines("for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags")
        wanted = b"".join(b"refs/tags/%b^{commit}\n" % name for name in names)
        shas = self._lines("cat-file", "--batch-check=%(objectname)", stdin=wanted)
        tags = zip(names, shas, strict=True)
        return {name.decode("utf-8", "replace"): sha.decode() for name, sha in tags if not sha.endswith(b" missing")}

    def merge_base(self, branch: str, tip: str) -> str:
        """Return the commit at which a branch (of this clone or of its origin) left the line that ends at `tip`."""
        self._require_history()
        head = self._find(branch) or self._find(f"origin/{branch}") or self.sha_of(branch)
        try:
            return self._first_line("merge-base", head, tip)
        except GitError as error:
            raise GitError(
                f"{_shown(self.path)}: {one_line(branch)} and the main line have no commit in common"
            ) from error

    def line(self, tip: str) -> list[str]:
        """Return all commits that a tip reaches, the oldest first; the index of each is its position.

        Parents come before their children, and the commits of a merged branch come right before the merge. So the commits
        between two commits of the main line are exactly the commits of `git log BASE..NEW`, and a history that grows at its end
        keeps its positions.
        """
        self._require_history()
        return _order(self._lines("rev-list", "--parents", "--topo-order", tip), tip.encode())

    def landed(self, base: str, tip: str, paths: Sequence[str] = ()) -> list[str]:
        """Return the commits after `base` up to `tip` along its first parents, oldest first; with paths, those touching one."""
        if self._first_line("merge-base", base, tip) != base or base == tip:
            raise GitError(
                f"{_shown(self.path)}: {base[:12]} did not land before {tip[:12]}: the older one comes first"
            )
        return self._first_parents(tip, f"^{base}", paths=paths)

    def newest(self, tip: str, number: int, paths: Sequence[str] = ()) -> list[str]:
        """Return the last commits up to `tip` along its first parents, oldest first; with paths, the last that touch one."""
        return self._first_parents(tip, f"--max-count={number}", paths=paths)

    def _first_parents(self, *arguments: str, paths: Sequence[str]) -> list[str]:
        literal = [f":(top,literal){path}" for path in paths]
        options = ("--first-parent", "--reverse", *arguments, "--", *literal)
        return [line.decode() for line in self._lines("rev-list", *options)]

    def touching(self, tip: str, path: str) -> set[str]:
        """Return the commits up to `tip` that touch a path of the repository; a merge only if its own content differs."""
        lines = self._lines("rev-list", "--full-history", tip, "--", f":(top,literal){path}")
        return {line.decode() for line in lines}

    def commits(self, places: Iterable[tuple[int, str]]) -> Iterator[LandedCommit]:
        """Yield the facts and the message of each commit, given as position and sha, in the given order."""
        options = ("-z", f"--format={_FORMAT}", "--encoding=UTF-8", "--no-walk=unsorted", "--stdin")
        quiet = ("--no-show-signature", "--no-notes", "--no-color", "--no-patch", "--no-mailmap")
        rest = iter(places)
        while batch := list(islice(rest, _BATCH)):
            wanted = "".join(f"{sha}\n" for _, sha in batch).encode()
            # Git ends each commit with a NUL, and cuts a message at its first one.
            *fields, _ = self._git("log", *quiet, *options, stdin=wanted).split(b"\0")
            if len(fields) != _FIELDS * len(batch):
                raise GitError(
                    f"{_shown(self.path)}: git listed other commits than the {len(batch)} asked for: try again"
                )
            for index, (position, _) in enumerate(batch):
                yield _commit(position, fields[_FIELDS * index : _FIELDS * (index + 1)])

    def _require_history(self) -> None:
        if self._first_line("rev-parse", "--is-shallow-repository") == "true":
            raise GitError(
                f"{_shown(self.path)} is a shallow clone, whose first commits are cut off: run `git fetch --unshallow` in it"
            )

    def _find(self, ref: str) -> str | None:
        try:
            return self._first_line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}") or None
        except (GitError, ValueError):  # ValueError: the ref contains a NUL
            return None

    def _first_line(self, *arguments: str) -> str:
        return self._git(*arguments).decode("utf-8", "replace").partition("\n")[0].strip()

    def _lines(self, *arguments: str, stdin: bytes = b"") -> list[bytes]:
        return self._git(*arguments, stdin=stdin).splitlines()

    def _git(self, *arguments: str, stdin: bytes = b"", **variables: str) -> bytes:
        """Run git and return its standard output."""
        command = [*_GIT, "-C", str(self.path), *arguments]
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, env=_environment() | variables, check=False
            )
        except FileNotFoundError as error:
            raise GitError("git is not installed: install it, or import where it is (apt-get install git)") from error
        if done.returncode:
            raise GitError(_explain(self.path, done.stderr.decode("utf-8", "replace")))
        return done.stdout


def _order(stream: Iterable[bytes], tip: bytes) -> list[str]:
    """Return the order of `Repository.line` from `git rev-list --parents --topo-order`, which has children before parents.

    Git's own order may put the commits of a merged branch far before the merge, if the branch had merged the main line.
    Here each commit belongs to the oldest commit of the main line (first parents, from the tip) that reaches it.
    """
    shas: list[bytes] = []
    owners = array("q")  # of each commit in git's order, the owner's distance from the tip
    waiting: dict[bytes, int] = {}
    next_of_main: bytes | None = tip
    distance, has_merges = -1, False
    for line in stream:
        sha, *parents = line.split()
        owner = waiting.pop(sha, -1)
        if sha == next_of_main:
            distance += 1
            owner, next_of_main = distance, parents[0] if parents else None
        for parent in parents:
            waiting[parent] = max(owner, waiting.get(parent, -1))
        has_merges = has_merges or len(parents) > 1
        shas.append(sha)
        owners.append(owner)
    shas.reverse()
    if has_merges:
        owners.reverse()
        shas = [shas[index] for index in sorted(range(len(shas)), key=lambda index: -owners[index])]
    return [sha.decode("ascii") for sha in shas]


def _commit(position: int, fields: list[bytes]) -> LandedCommit:
    sha, author, committer, subject, message = (field.decode("utf-8", "replace") for field in fields)
    return LandedCommit(position, sha, _moment(author), _moment(committer), subject, message)


def _moment(text: str) -> float | None:
    """Return a time of git in seconds since 1970; None if a clock was so wrong that no reader could show the time."""
    try:
        seconds = float(int(text))
    except ValueError:
        return None
    return seconds if 0 <= seconds < _LATEST else None


def _environment() -> dict[str, str]:
    """Return the environment without variables that would lead git to another repository or make it ask for input."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    return kept | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}


def _explain(path: Path, errors: str) -> str:
    first = next((line.strip() for line in errors.splitlines() if line.strip()), "git failed")
    if "not a git repository" in first:
        return f"{_shown(path)} is no git repository: --git takes the path of a clone"
    return f"{_shown(path)}: git says {one_line(first, 200)!r}"


def _shown(path: Path) -> str:
    return one_line(str(path), 200)


@dataclass(frozen=True, slots=True)
class History:
    """The contents of a clone, read before anything is written: tip, line, the start of each requested branch, tags.

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
        """Store the commits of the line, starts of branches and tags, in one transaction.

        Commits that the database knows already are always stored, so that their facts are git's. With `around`, the only other
        commits stored are these and the commits between each of them and the next measured commits. `replace` lets this line
        replace the stored one.

        Raises:
            CommitError: the line differs from the stored one.
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
    """Store the commits that the blame ranges of these refs need, and the commit at which their branch left the main line.

    If an earlier import placed all of them, only their places are read. Return a line that says what was imported, or why
    nothing could be: a run does not need its commits.
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
    """Read the history of a ref, by default the main line: everything that can fail before the database is changed.

    Raises:
        GitError: the clone cannot be read, or lacks a branch or ref, or no commit touches the path.
    """
    ref = ref or clone.main_ref()
    tip = clone.sha_of(ref)
    starts = {name: clone.merge_base(name, tip) for name in branches}
    touching = None if path is None else clone.touching(tip, path)
    if path is not None and not touching:
        raise GitError(f"no commit up to {one_line(ref)} touches {one_line(path)!r}: --path starts at the root")
    return History(clone, repo, ref, tip, clone.line(tip), touching, starts, clone.tags())
