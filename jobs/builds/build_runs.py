"""Measures one torch after the other: its runs, its bundles. One that fails is reported and skipped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from packaging.version import Version

from collector.bundle import BundleContents
from jobs.builds.build_environments import Environments, Listing
from jobs.builds.build_options import BuildError, SourceOptions
from jobs.git_log import Repository
from jobs.pool.child import ChildError, Request, bundle_files, complete_bundles, measure_in
from jobs.pool.runner import new_run_id

#: The branch that releases are points of: in their own branches, such as `release/2.9`, a series has one point.
RELEASES, NIGHTLIES = "releases", "nightly"


@dataclass(frozen=True, slots=True)
class Build:
    """A build of torch, in an environment of its own."""

    version: Version
    environments: Environments
    listing: Listing

    @property
    def name(self) -> str:
        """As `torch-2.9.1`."""
        return f"torch-{self.version}"

    @property
    def date(self) -> str | None:
        """When the index got it."""
        return self.listing.date_of(self.version)

    def prepare(self, request: Request, say: Callable[[str], None]) -> tuple[Path, Request, str]:
        """The Python that measures it, the request of its run, and what is measured, in words. Raises `ChildError`.

        Makes the environment if it is not there.
        """
        say(f"torch {self.version}: environment {self.environments.path_of(self.version)}")
        start = monotonic()
        environment = self.environments.ready(self.version)
        if environment.is_new:
            say(f"torch {self.version}: made in {monotonic() - start:.0f} s")
        branch = request.names.branch or (NIGHTLIES if self.version.is_prerelease else RELEASES)
        words = f"torch {environment.torch} @{environment.commit[:10]}"
        return environment.python, request.called(branch=branch, commit_date=self.date), words


@dataclass(frozen=True, slots=True)
class SourceCommit:
    """A commit's Python files over the installed torch. The run is of `branch`."""

    options: SourceOptions
    clone: Path
    sha: str
    branch: str

    date = None  # the run has the commit's own

    @property
    def name(self) -> str:
        """As `commit-70d99e998b49`."""
        return f"commit-{self.sha[:12]}"

    def prepare(self, request: Request, say: Callable[[str], None]) -> tuple[Path, Request, str]:
        """As that of a build; makes the overlay if it is not there."""
        names = replace(request.names, branch=request.names.branch or self.branch or None)
        options = replace(self.options, source=f"{self.clone}@{self.sha}")
        names, requested = options.applied(names, request.requested)
        words = f"{self.sha[:10]} {names.commit_title}"
        return Path(sys.executable), replace(request, names=names, requested=requested), words


def commits_of(options: SourceOptions, paths: Sequence[str] = (), last: int | None = None) -> list[SourceCommit]:
    """The commits that REPO@REF (one commit, or the `last` ones up to it) or REPO@GOOD..BAD means, oldest first.

    With `paths` those of a range, or the last ones, that touch one of them.

    Raises:
        BuildError: another form, or no such commits.
        GitError: no clone, or it lacks a ref.
    """
    path, _, ref = str(options.source).rpartition("@")
    first, dots, tip = ref.rpartition("..")
    if not path or not tip or (dots and not first) or tip == ".":
        raise BuildError(f"--source {options.source}: write REPO@REF or REPO@GOOD..BAD: backfill measures commits")
    repository = Repository(Path(path).expanduser())
    head = repository.sha_of(tip)
    if first:
        shas = repository.landed(repository.sha_of(first), head, paths)
        shas = shas[-last:] if last else shas
    else:
        shas = repository.newest(head, last, paths) if last else [head]
    if not shas:
        raise BuildError(f"--source {options.source}: no commit there touches {', '.join(paths)}")
    branch = repository.branch_of(tip)
    return [SourceCommit(options, repository.path, sha, branch) for sha in shas]


@dataclass(slots=True)
class BackfillResult:
    """The outcome of one candidate: the torch and commit that were measured, statuses counted, or why it was skipped.

    `build` is the version of a build, `commit-` and a sha for a source. `seconds` is 0 where nothing was left to measure.
    """

    build: str
    torch: str = ""
    commit: str = ""
    date: str | None = None
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    skipped: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object with a key for every field."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return data | {"statuses": dict(self.statuses), "seconds": round(self.seconds, 1)}

    def __str__(self) -> str:
        if self.skipped:
            name = self.build.replace("-", " ") if self.build.startswith("commit-") else f"torch {self.build}"
            return f"{name}: skipped: {self.skipped}"
        counts = ", ".join(f"{number} {status}" for status, number in self.statuses.most_common())
        took = f"{self.seconds:.0f} s" if self.seconds else "at hand"
        return f"torch {self.torch} @{self.commit[:10]} {(self.date or 'no date')[:10]}: {counts}; {took}"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What is the same for every candidate: `folder` takes the bundles, a folder a candidate; `store` ingests one."""

    request: Request
    folder: Path
    replicates: int
    store: Callable[[Path], str] | None
    say: Callable[[str], None]

    def fill(self, candidate: Build | SourceCommit) -> BackfillResult:
        """Measures a torch, or says why not. Bundles that are complete are not measured again, but stored again."""
        result = BackfillResult(candidate.name.removeprefix("torch-"), date=candidate.date)
        start = monotonic()
        try:
            if self._measure(candidate, result):
                result.seconds = monotonic() - start
        except ChildError as error:
            result.skipped = error.message
            self.say(str(result))
        return result

    def _measure(self, candidate: Build | SourceCommit, result: BackfillResult) -> bool:
        """Makes the runs that are not complete yet; says whether there were any."""
        folders = [self.folder / candidate.name / f"{self.request.key}-{run + 1}" for run in range(self.replicates)]
        complete = [complete_bundles(folder) for folder in folders]
        is_done = all(complete)
        if not is_done:
            python, request, words = candidate.prepare(self.request, self.say)
            request = request.called(night=self._night(complete))
        for number, (folder, bundles) in enumerate(zip(folders, complete, strict=True), start=1):
            if not bundles:
                self.say(f"{words}, run {number}")
                bundles = measure_in(python, request, folder)
            self._take(result, folder, bundles)
        return not is_done

    def _night(self, complete: Sequence[Sequence[BundleContents]]) -> str:
        """The name that the replicates of a candidate share: that of those which are there already."""
        if self.replicates == 1:
            return ""
        names = (contents.header.night for bundles in complete for contents in bundles)
        return next(filter(None, names), "") or new_run_id()

    def _take(self, result: BackfillResult, folder: Path, bundles: Sequence[BundleContents]) -> None:
        for contents in bundles:
            result.runs += 1
            result.commit = contents.header.commit
            result.date = result.date or contents.header.commit_date
            result.torch = next((str(data["torch"]) for data in contents.environments.values() if "torch" in data), "?")
            result.statuses.update(item.status.value for item in contents.latest().values())
        if self.store:
            for path in bundle_files(folder):
                self.say(self.store(path))
