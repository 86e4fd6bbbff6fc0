"""One build after the other: its environment, its runs, its bundles; a build that cannot be had is said and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import click

from collector.bundle import BundleContents
from jobs.builds.build import Build, BuildError
from jobs.builds.environment import Environments, Ready
from jobs.builds.index import Listing
from jobs.builds.measuring import bundle_files, complete_bundles, measure_in
from jobs.builds.request import Request
from jobs.pool.runner import new_run_id

#: The branch that releases are points of: in their own branches, such as `release/2.9`, a series has one point.
RELEASES, NIGHTLIES = "releases", "nightly"

Store = Callable[[Path], str]
Tell = Callable[[str], None]


@dataclass(slots=True)
class Filled:
    """What became of one build: the torch and commit that were measured, statuses counted, or why there are none."""

    build: Build
    torch: str = ""
    commit: str = ""
    date: str | None = None
    runs: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    skipped: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `seconds` is 0 where nothing was left to measure."""
        return {
            "build": self.build.version,
            "torch": self.torch,
            "commit": self.commit,
            "date": self.date,
            "runs": self.runs,
            "statuses": dict(self.statuses),
            "seconds": round(self.seconds, 1),
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        if self.skipped:
            return f"torch {self.build.version}: skipped: {self.skipped}"
        counts = ", ".join(f"{number} {status}" for status, number in self.statuses.most_common())
        took = f"{self.seconds:.0f} s" if self.seconds else "at hand"
        return f"torch {self.torch} @{self.commit[:10]} {(self.date or 'no date')[:10]}: {counts}; {took}"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What is the same for every build. `folder` takes the bundles, a folder a build; `store` puts one into the database."""

    environments: Environments
    request: Request
    folder: Path
    replicates: int
    listing: Listing
    store: Store | None
    tell: Tell

    def fill(self, build: Build) -> Filled:
        """Measures one build, or says why not. Bundles that are complete are not measured again, but stored again."""
        found = Filled(build, date=self.listing.date_of(build))
        start = monotonic()
        try:
            self._measure(build, found)
        except BuildError as error:
            found.skipped = error.message
        found.seconds = monotonic() - start if found.seconds else 0.0
        return found

    def _measure(self, build: Build, found: Filled) -> None:
        places = [self.folder / build.name / f"{self.request.key}-{number}" for number in range(1, self.replicates + 1)]
        kept = [complete_bundles(place) for place in places]
        ready = None if all(kept) else self._environment(build)
        night = self._night(kept)
        for place, bundles in zip(places, kept, strict=True):
            if not bundles:
                assert ready is not None  # noqa: S101 - made where a bundle is wanting
                found.seconds = 1.0
                self.tell(f"torch {ready.torch} @{ready.commit[:10]}, run {place.name.rpartition('-')[2]}")
                named = self.request.called(branch=self._branch(build), commit_date=found.date, night=night)
                bundles = measure_in(ready.python, named, place)
            self._keep(found, place, bundles)

    def _environment(self, build: Build) -> Ready:
        self.tell(f"torch {build.version}: environment {self.environments.path_of(build)}")
        start = monotonic()
        ready = self.environments.ready(build)
        if ready.made:
            self.tell(f"torch {build.version}: made in {monotonic() - start:.0f} s")
        return ready

    def _branch(self, build: Build) -> str:
        return self.request.names.branch or (RELEASES if build.is_release else NIGHTLIES)

    def _night(self, kept: Sequence[Sequence[BundleContents]]) -> str:
        """The name that the runs of a build share: that of those which are there already."""
        if self.replicates == 1:
            return ""
        names = [contents.header.night for bundles in kept for contents in bundles if contents.header.night]
        return names[0] if names else new_run_id()

    def _keep(self, found: Filled, place: Path, bundles: Sequence[BundleContents]) -> None:
        for contents in bundles:
            found.runs += 1
            found.commit = contents.header.commit
            found.torch = next((str(data["torch"]) for data in contents.environments.values() if "torch" in data), "?")
            found.statuses.update(item.status.value for item in contents.latest().values())
        if self.store:
            for path in bundle_files(place):
                self.tell(self.store(path))


class NothingFilledError(click.ClickException):
    """Not one build could be measured."""

    exit_code = 3
