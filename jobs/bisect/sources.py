"""What a bisection measures: builds in environments of their own, or commits, by an overlay or as a command prepares them.

Of the code alone it measures nothing: the census generates it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from collector.census.gpu_models import CensusError
from collector.vocabulary import Cell
from jobs.bisect.judges import OF_RUNNING, Reading
from jobs.builds.build_environments import Environments, list_builds
from jobs.builds.build_options import BuildError, BuildOptions, SourceOptions, parse_build
from jobs.builds.overlay import acting, differing
from jobs.census.census_commits import take_commit
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusMemory
from jobs.git_log import Repository
from jobs.output.terminal import one_line
from jobs.pool.child import ChildError, Request, bundle_files, measure_in
from jobs.requested_options import RequestedOptions, RunNames

#: The environment variable in which the command finds the commit; it is never written into the command.
COMMIT_VARIABLE = "INDUCTOR_WATCH_COMMIT"


def builds_between(good: str, bad: str, named: Sequence[str], options: BuildOptions) -> list[str]:
    """The versions from good to bad: the named ones, else those of the index.

    Raises:
        BuildError: good is not older than bad, or the index cannot be read.
    """
    first, last = parse_build(good), parse_build(bad)
    if first >= last:
        raise BuildError(
            f"--good {first} is not older than --bad {last}: --good is the older end, even if it is the slower one"
        )
    candidates = [parse_build(text) for text in named] if named else _offered(options, (first, last))
    inside = {build for build in candidates if first < build < last}
    return [str(build) for build in sorted({first, *inside, last})]


def _offered(options: BuildOptions, ends: tuple[Version, Version]) -> list[Version]:
    """The builds of the index, without pre-releases unless an end is one; one of 2.13.0 and 2.13.0+cpu is enough."""
    by_public: dict[str, Version] = {}
    for build in sorted(map(Version, list_builds(options.words()).versions)):
        by_public.setdefault(build.public, build)  # the one without a local version comes first
    with_nightlies = any(end.is_prerelease for end in ends)
    others = by_public.keys() - {end.public for end in ends}
    return [
        build for public, build in by_public.items() if public in others and (with_nightlies or not build.is_prerelease)
    ]


def commits_between(folder: Path, good: str, bad: str) -> list[str]:
    """The shas from good to bad, along the first parents of bad. Raises `GitError` where there is no such way."""
    repository = Repository(folder)
    first, last = repository.sha_of(good), repository.sha_of(bad)
    return [first, *repository.landed(first, last)]


def compiled_only(request: Request) -> Request:
    """The same without timing and correctness check."""
    settings = replace(request.requested.settings, code_only=True)
    return replace(request, requested=replace(request.requested, settings=settings))


@dataclass(frozen=True, slots=True)
class TorchBuilds:
    """Measures torch builds, each in its environment; the bundles go below `folder`."""

    environments: Environments
    request: Request
    metric: str
    folder: Path

    def measure(self, name: str, number: int) -> Reading:
        """Measures run `number` of a build. Raises ChildError where it cannot be installed, or nothing can be measured in it."""
        build = parse_build(name)
        environment = self.environments.ready(build)
        bundles = self.folder / f"torch-{build}" / str(number)
        return read_run(environment.python, self.request, bundles, self.metric, self.folder)


@dataclass(frozen=True, slots=True)
class Overlays:
    """Measures commits of a repository by their Python files over the installed torch; the bundles go below `folder`."""

    repository: Path
    options: SourceOptions
    request: Request
    metric: str
    folder: Path
    _requests: dict[str, Request] = field(default_factory=dict, init=False)

    def measure(self, name: str, number: int) -> Reading:
        """Measures run `number` of a commit. Raises ChildError where it needs a build, or nothing can be measured."""
        return self._read(name, self._request(name), str(number))

    def same_as(self, name: str, codes: Mapping[str, str | None]) -> str | None:
        """One of the measured commits (with their code) that a commit behaves as: it has the same Python files of torch, or
        generates the same code where all files that differ act while compiling only. It is compiled once to find that out.
        """
        own = self._overlay(name)
        if (same := next((other for other in codes if self._overlay(other) == own), None)) is not None:
            return same
        # Where both ends generate one code, it tells no side.
        if self.metric not in OF_RUNNING or len(set(codes.values())) < 2:
            return None
        overlays = {other: self._overlay(other) for other, code in codes.items() if code}
        like = [other for other, overlay in overlays.items() if not acting(overlay, own, differing(overlay, own))]
        if not like:
            return None
        code = self._read(name, compiled_only(self._request(name)), "code").code
        return next((other for other in like if codes[other] == code), None)

    def _request(self, name: str) -> Request:
        if name not in self._requests:
            source = replace(self.options, source=f"{self.repository}@{name}")
            names, requested = source.applied(self.request.names, self.request.requested)
            self._requests[name] = replace(self.request, names=names, requested=requested)
        return self._requests[name]

    def _overlay(self, name: str) -> Path:
        return Path(self._request(name).requested.execution.overlay)

    def _read(self, name: str, request: Request, bundles: str) -> Reading:
        return read_run(Path(sys.executable), request, self.folder / name[:12] / bundles, self.metric, self.folder)


@dataclass(slots=True)
class Checkouts:
    """Measures commits of a repository, each after a command has prepared it; the bundles go below `folder`."""

    repository: Path
    command: str
    python: Path
    request: Request
    metric: str
    folder: Path
    _prepared: str = field(default="", init=False)

    def measure(self, name: str, number: int) -> Reading:
        """Measures run `number` of a commit, prepared unless it was the last one. Raises ChildError where that fails."""
        if self._prepared != name:
            self._prepared = ""
            self._prepare(name)
            self._prepared = name
        bundles = self.folder / name[:12] / str(number)
        return read_run(self.python, self.request.called(commit=name), bundles, self.metric, self.folder)

    def _prepare(self, sha: str) -> None:
        log = self.folder / "prepare.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(f"== {sha}\n".encode())
            stream.flush()
            start = stream.tell()
            done = subprocess.run(
                ["/bin/sh", "-c", self.command],
                cwd=self.repository,
                env={**os.environ, COMMIT_VARIABLE: sha},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            output = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()
            last = one_line(output[-1], 200) if output else "no output"
            raise BuildError(f"the --run command ended with exit code {done.returncode} ({last}); see {log}")


@dataclass(frozen=True, slots=True)
class CommitCode:
    """Generates the code of a cell at commits of a repository, without a GPU; the bundles go below `folder`."""

    repository: Path
    options: SourceOptions
    cell: Cell
    place: CensusPlace
    asked: tuple[RunNames, RequestedOptions]
    memory: CensusMemory
    folder: Path

    def measure(self, name: str, number: int) -> Reading:
        """Return the code at a commit. Raises `ChildError` where it needs a build, or where its code is not known."""
        source = replace(self.options, source=f"{self.repository}@{name}")
        folder = self.folder / name[:12]
        try:
            found, bundle, _ = take_commit(source, [self.cell], self.place, self.asked, self.memory.answers, folder)
        except CensusError as error:
            raise ChildError(f"{name[:12]}: {error}") from error
        one = found[self.cell.cell_id]
        if not one.is_known:
            raise ChildError(f"{name[:12]}: no code of {self.cell}: {one.describe()}")
        path = str(bundle.relative_to(self.folder)) if bundle else ""
        return Reading(one.measurement.status.value, None, name, path, code=one.code_id)


def bisected_cell(cells: Sequence[Cell]) -> Cell:
    """Return the one cell that is planned. Raises `BuildError` where there are several."""
    if len(cells) != 1:
        named = ", ".join(sorted({f"{cell.suite}/{cell.model} {cell.config.name}" for cell in cells})[:4])
        raise BuildError(
            f"bisect takes one cell, and the options select {len(cells)} ({named}): narrow --model, --suite or --config"
        )
    return cells[0]


def read_run(python: Path, request: Request, bundles: Path, metric: str, folder: Path) -> Reading:
    """Measures one cell and reads its outcome; a run that is complete in `bundles` is read again, not measured.

    Raises:
        ChildError: nothing could be measured, or the request is of several cells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = measure_in(python, request, bundles, folder / "measuring.log")[0]
    bisected_cell(contents.planned)
    (measurement,) = contents.latest().values()
    bundle = bundle_files(bundles)[0].relative_to(folder)
    value, eager, eager_kernel = (measurement.metrics.get(name) for name in (metric, "eager_ms", "eager_kernel_ms"))
    commit, code = contents.header.commit, measurement.code_id
    return Reading(measurement.status.value, value, commit, str(bundle), eager, eager_kernel, code)
