"""Commit, branch and date of what is imported: from the caller, else from the records, else from a repository."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from db.errors import in_words, one_line
from db.importing.errors import ImportingError
from db.importing.rows import Told
from db.queries.moments import from_epoch, to_epoch

_DEFAULT_REPO = "pytorch/pytorch"


@dataclass(frozen=True, slots=True)
class GitCommit:
    """What a repository knows of a commit; dates are ISO 8601."""

    sha: str
    branch: str | None
    authored: str
    committed: str
    title: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the caller says; `git` is a repository that is asked for whatever nobody told."""

    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    date: str | None = None
    git: Path | None = None
    label: str = ""
    tool_version: str = ""

    def repository(self, commit: str | None) -> GitCommit | None:
        """What the repository knows of the caller's commit, of a told one, or of what is checked out; None without one.

        Raises:
            ImportingError: no repository, or no such commit there; a commit that a record tells may be unknown.
        """
        if self.git is None:
            return None
        try:
            return read_git(self.git, self.commit or commit or "HEAD")
        except ImportingError:
            if self.commit or not commit:
                raise
            read_git(self.git, "HEAD")  # says whether it is a repository at all
            return None

    @property
    def epoch(self) -> float | None:
        """The caller's date in seconds since 1970. Raises `ImportingError` if it is none."""
        if self.date is None:
            return None
        try:
            return to_epoch(self.date)
        except (ValueError, OverflowError) as error:
            raise ImportingError(f"--date {one_line(self.date)!r} is no date: write it as 2026-08-01T02:00") from error


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and when a run was: all that its header needs besides the testbed. `date` is in seconds since 1970."""

    repo: str
    branch: str
    commit: str
    date: float
    commit_date: str | None = None
    commit_title: str | None = None


def settle(told: Told, asked: Provenance) -> Origin | str:
    """The origin of rows that were told so; or what nobody knows, in words."""
    commit, branch, date = asked.commit or told.commit, asked.branch or told.branch, asked.epoch or told.timestamp
    here = asked.repository(told.commit)
    if here is not None:
        commit, branch = here.sha, branch or (here.branch if not told.commit else None)
        date = to_epoch(here.committed) if date is None else date
    if missing := [word for word, value in (("commit", commit), ("branch", branch), ("date", date)) if value is None]:
        options = in_words([f"--{word}" for word in missing], "and")
        return f"no {in_words(missing, 'or')}: pass {options}, or --git PATH"
    assert commit and branch and date is not None  # noqa: S101 - all three were just looked at
    try:
        from_epoch(date)
        to_epoch(from_epoch(date).isoformat())
    except (ValueError, OverflowError, OSError):
        return f"{date!r} is no date: pass --date"
    known = (here.authored, here.title) if here else (None, None)
    return Origin(asked.repo or told.repo or _DEFAULT_REPO, branch, commit, date, *known)


@cache
def read_git(path: Path, revision: str) -> GitCommit:
    """A commit of a repository.

    Raises:
        ImportingError: no repository, no such commit, or no git.
    """
    shown = one_line(str(path), 200)
    if revision.startswith("-"):
        raise ImportingError(f"{one_line(revision)!r} is no commit")
    sha, authored, committed, title = _git(path, "log", "-1", "--format=%H%n%aI%n%cI%n%s", revision, "--").split("\n")[
        :4
    ]
    if not sha:
        raise ImportingError(f"{shown} has no commit {one_line(revision)}")
    branch = _git(path, "rev-parse", "--abbrev-ref", "HEAD").strip()
    return GitCommit(sha, branch if branch != "HEAD" else None, authored, committed, title)


def _git(path: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(path), *words],  # noqa: S607 - the caller's own git
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ImportingError(
            f"git does not run here ({type(error).__name__}): pass --commit, --branch and --date"
        ) from error
    if done.returncode:
        said = one_line(" ".join(done.stderr.split()), 160)
        raise ImportingError(f"--git {one_line(str(path), 200)}: {said}")
    return done.stdout
