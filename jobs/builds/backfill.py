"""Measures one build after the other: its environment, its runs, its bundles. A build that fails is reported and skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from packaging.version import Version

from collector.bundle import BundleContents
from jobs.builds.environment import Environment, Environments
from jobs.builds.index import Listing
from jobs.pool.child import ChildError, Request, bundle_files, complete_bundles, measure_in
from jobs.pool.runner import new_run_id

#: The branch that releases are points of: in their own branches, such as `release/2.9`, a series has one point.
RELEASES, NIGHTLIES = "releases", "nightly"


@dataclass(slots=True)
class BuildResult:
    """The outcome of one build: the torch and commit that were measured, statuses counted, or why it was skipped.

    `seconds` is 0 where nothing was left to measure.
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
            return f"torch {self.build}: skipped: {self.skipped}"
        counts = ", ".join(f"{number} {status}" for status, number in self.statuses.most_common())
        took = f"{self.seconds:.0f} s" if self.seconds else "at hand"
        return f"torch {self.torch} @{self.commit[:10]} {(self.date or 'no date')[:10]}: {counts}; {took}"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What is the same for every build: `folder` takes the bundles, a folder a build; `store` ingests one."""

    environments: Environments
    request: Request
    folder: Path
    replicates: int
    listing: Listing
    store: Callable[[Path], str] | None
    say: Callable[[str], None]

    def fill(self, build: Version) -> BuildResult:
        """Measures one build, or says why not. Bundles that are complete are not measured again, but stored again."""
        result = BuildResult(str(build), date=self.listing.date_of(build))
        start = monotonic()
        try:
            if self._measure(build, result):
                result.seconds = monotonic() - start
        except ChildError as error:
            result.skipped = error.message
            self.say(str(result))
        return result

    def _measure(self, build: Version, result: BuildResult) -> bool:
        """Makes the runs that are not complete yet; says whether there were any."""
        folders = [self.folder / f"torch-{build}" / f"{self.request.key}-{run + 1}" for run in range(self.replicates)]
        complete = [complete_bundles(folder) for folder in folders]
        environment = None if all(complete) else self._environment(build)
        night = self._night(complete)
        for number, (folder, bundles) in enumerate(zip(folders, complete, strict=True), start=1):
            if environment and not bundles:
                self.say(f"torch {environment.torch} @{environment.commit[:10]}, run {number}")
                branch = self.request.names.branch or (NIGHTLIES if build.is_prerelease else RELEASES)
                request = self.request.called(branch=branch, commit_date=result.date, night=night)
                bundles = measure_in(environment.python, request, folder)
            self._take(result, folder, bundles)
        return environment is not None

    def _environment(self, build: Version) -> Environment:
        self.say(f"torch {build}: environment {self.environments.path_of(build)}")
        start = monotonic()
        environment = self.environments.ready(build)
        if environment.is_new:
            self.say(f"torch {build}: made in {monotonic() - start:.0f} s")
        return environment

    def _night(self, complete: Sequence[Sequence[BundleContents]]) -> str:
        """The name that the replicates of a build share: that of those which are there already."""
        if self.replicates == 1:
            return ""
        names = (contents.header.night for bundles in complete for contents in bundles)
        return next(filter(None, names), "") or new_run_id()

    def _take(self, result: BuildResult, folder: Path, bundles: Sequence[BundleContents]) -> None:
        for contents in bundles:
            result.runs += 1
            result.commit = contents.header.commit
            result.torch = next((str(data["torch"]) for data in contents.environments.values() if "torch" in data), "?")
            result.statuses.update(item.status.value for item in contents.latest().values())
        if self.store:
            for path in bundle_files(folder):
                self.say(self.store(path))
