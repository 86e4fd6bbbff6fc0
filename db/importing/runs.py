"""Rows that belong to one run, its commit, branch and date, and its bundle, whose name is a hash of the content."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents, RunHeader
from collector.vocabulary import canonical_json, short_hash
from db.errors import counted, in_words, one_line
from db.importing.cells import Given, Identity, identify
from db.importing.merging import merge
from db.importing.rows import ImportingError, Row, Target, Uploader
from db.queries.moments import from_epoch, to_epoch

_DEFAULT_REPO = "pytorch/pytorch"


@dataclass(frozen=True, slots=True)
class GitCommit:
    """A commit in a git repository; dates are ISO 8601."""

    sha: str
    branch: str | None
    authored: str
    committed: str
    title: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """The caller's values; `git` is a repository that supplies missing ones."""

    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    date: str | None = None
    git: Path | None = None
    label: str = ""
    tool_version: str = ""

    def repository(self, commit: str | None) -> GitCommit | None:
        """The repository's entry for the caller's commit, the given one, or HEAD; None without a repository.

        Raises `ImportingError` where there is no such repository, or the caller's commit is not in it; a record's commit may
        be unknown.
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


#: The trigger of imported runs; the cost model leaves such runs out.
TRIGGER = "import"


def settle(uploader: Uploader, asked: Provenance) -> RunHeader | str:
    """Repository, branch, commit and date of rows as a run without name and testbed, or a text that says what is missing."""
    commit, branch, date = (
        asked.commit or uploader.commit,
        asked.branch or uploader.branch,
        asked.epoch or uploader.timestamp,
    )
    here = asked.repository(uploader.commit)
    if here is not None:
        commit, branch = here.sha, branch or (here.branch if not uploader.commit else None)
        date = to_epoch(here.committed) if date is None else date
    if missing := [word for word, value in (("commit", commit), ("branch", branch), ("date", date)) if value is None]:
        options = in_words([f"--{word}" for word in missing], "and")
        return f"no {in_words(missing, 'or')}: pass {options}, or --git PATH"
    assert commit and branch and date is not None  # noqa: S101 - all three were just looked at
    try:
        started_at = from_epoch(date).isoformat()
        to_epoch(started_at)
    except (ValueError, OverflowError, OSError):
        return f"{date!r} is no date: pass --date"
    return RunHeader(
        run_id="",
        branch=branch,
        commit=commit,
        testbed={},
        started_at=started_at,
        repo=asked.repo or uploader.repo or _DEFAULT_REPO,
        trigger=TRIGGER,
        label=asked.label,
        commit_date=here.authored if here else None,
        commit_title=here.title if here else None,
    )


@cache
def read_git(path: Path, revision: str) -> GitCommit:
    """A commit of a repository. Raises `ImportingError` without a repository, such a commit, or git."""
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
        message = one_line(" ".join(done.stderr.split()), 160)
        raise ImportingError(f"--git {one_line(str(path), 200)}: {message}")
    return done.stdout


@dataclass(slots=True)
class _Group:
    """Rows of one run."""

    header: RunHeader
    rows: list[tuple[Identity, Row]]


def runs_of(rows: Sequence[Row], asked: Provenance, given: Given, problems: list[str]) -> list[BundleContents]:
    """The runs of these rows, in the order of the rows.

    A run has what one workflow measured of one commit on one kind of machine. Rows without a known cell or commit are left
    out, with a line per file in `problems`.
    """
    groups: dict[str, _Group] = {}
    lacking: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        identity = identify(row, given)
        origin = settle(row.uploader, asked)
        for lack in (identity, origin):
            if isinstance(lack, str):
                lacking[row.source.name, lack].append(row.line)
        if isinstance(identity, str) or isinstance(origin, str):
            continue
        header = replace(origin, testbed=_testbed(row, identity))
        key = canonical_json([header.repo, header.branch, header.commit, row.uploader.workflow_id, header.testbed])
        groups.setdefault(key, _Group(header, [])).rows.append((identity, row))
    for (name, lack), lines in lacking.items():
        problems.append(f"{name}: {counted(len(lines), 'row')} left out (line {lines[0]}): {lack}")
    return [_run(group, asked, problems) for group in groups.values()]


def _run(group: _Group, asked: Provenance, problems: list[str]) -> BundleContents:
    # Later attempts of a workflow come last, so that they count.
    ordered = sorted(group.rows, key=lambda pair: pair[1].uploader.run_attempt or 1)
    uploaders = [row.uploader for _, row in ordered]
    moments = [item.timestamp for item in uploaders if item.timestamp is not None] if asked.date is None else []
    # The caller's date, or that of the repository, where no record has one.
    times = [from_epoch(moment).isoformat() for moment in (min(moments), max(moments))] if moments else []
    started_at, finished_at = times or (group.header.started_at, group.header.started_at)
    measurements, environments = merge(ordered, started_at, asked.date is not None, problems)
    attempt = max((item.run_attempt or 1 for item in uploaders), default=1)
    workflow = next((item.workflow_id for item in uploaders if item.workflow_id), "")
    ci_url = f"https://github.com/{group.header.repo}/actions/runs/{workflow}" if workflow.isdigit() else ""
    header = replace(group.header, started_at=started_at, attempt=attempt, ci_url=ci_url)
    content = [header.to_json(), sorted(canonical_json(item.to_json()) for item in measurements), environments]
    # A hash of the content alone: the same files give the same run, and any difference gives another one.
    run_id = f"import-{started_at[:10].replace('-', '')}-{short_hash(content)}"
    return BundleContents(
        replace(header, run_id=run_id, tool_version=asked.tool_version),
        list(dict.fromkeys(item.cell for item in measurements)),
        environments,
        measurements=measurements,
        finished_at=finished_at,
        attempt=attempt,
    )


def _testbed(row: Row, identity: Identity) -> dict[str, Any]:
    """The testbed, as far as it is known; another harness is another testbed."""
    harness = "GraphNet" if row.target is Target.GRAPHNET else "benchmarks/dynamo"
    if row.benchmark not in (None, "TorchInductor"):
        harness = str(row.benchmark)
    testbed: dict[str, Any] = {"harness": harness, "device": identity.device, "accelerator": identity.accelerator}
    runners = row.extra.get("runners")
    runner = runners[0] if isinstance(runners, list) and runners and isinstance(runners[0], dict) else {}
    words = {"type": "runner", "gpu_info": "gpu", "gpu_count": "gpu_count", "cpu_info": "cpu", "cpu_count": "cores"}
    # Without the runner's own name, since any runner of a kind may take a shard.
    return testbed | {ours: runner[theirs] for theirs, ours in words.items() if runner.get(theirs) not in (None, "", 0)}
