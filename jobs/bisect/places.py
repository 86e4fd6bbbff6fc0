"""Where a bisection measures: environments of torch builds, or a checkout that a command prepares for each commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from jobs.bisect.log import Reading
from jobs.builds.build import BuildError, parse_build
from jobs.builds.environment import Environments
from jobs.builds.measuring import bundle_files, measure_in
from jobs.builds.request import Request
from jobs.output.terminal import one_line

#: By this name the command finds the commit in its environment; it is never written into the command.
COMMIT_VARIABLE = "INDUCTOR_WATCH_COMMIT"


class TorchBuilds:
    """Measures torch builds, each in its environment."""

    def __init__(self, environments: Environments, request: Request, metric: str, folder: Path) -> None:
        self._environments, self._request, self._metric, self._folder = environments, request, metric, folder

    def measure(self, name: str, number: int) -> Reading:
        """One run of a build. Raises BuildError where it cannot be had, or nothing can be measured in it."""
        build = parse_build(name)
        ready = self._environments.ready(build)
        place = self._folder / build.name / str(number)
        return read_run(ready.python, self._request, place, self._metric, self._folder)


class Checkouts:
    """Measures commits of a repository, each after a command has prepared it."""

    def __init__(
        self, repository: Path, command: str, python: Path, request: Request, metric: str, folder: Path
    ) -> None:
        self._repository, self._command, self._python = repository, command, python
        self._request, self._metric, self._folder = request, metric, folder
        self._prepared = ""

    def measure(self, name: str, number: int) -> Reading:
        """One run of a commit, which is prepared unless it was the last one. Raises BuildError where that fails."""
        place = self._folder / name[:12] / str(number)
        if self._prepared != name:
            self._prepared = ""
            self._prepare(name)
            self._prepared = name
        return read_run(self._python, self._request.called(commit=name), place, self._metric, self._folder)

    def _prepare(self, sha: str) -> None:
        log = self._folder / "prepare.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            stream.write(f"== {sha}\n".encode())
            stream.flush()
            start = stream.tell()
            done = subprocess.run(
                ["/bin/sh", "-c", self._command],
                cwd=self._repository,
                env={**os.environ, COMMIT_VARIABLE: sha},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            said = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()
            last = one_line(said[-1], 200) if said else "it said nothing"
            raise BuildError(f"the --run command ended with exit code {done.returncode} ({last}); see {log}")


def read_run(python: Path, request: Request, place: Path, metric: str, folder: Path) -> Reading:
    """Measures one cell and reads how it ended; a run that is complete in `place` is read again, not measured.

    Raises:
        BuildError: nothing could be measured, or the request is of several cells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = measure_in(python, request, place, folder / "measuring.log")[0]
    if len(contents.planned) != 1:
        named = ", ".join(sorted({f"{cell.suite}/{cell.model} {cell.config.name}" for cell in contents.planned})[:4])
        raise BuildError(
            f"bisect takes one cell, and the options select {len(contents.planned)} ({named}): "
            "narrow --model, --suite or --config"
        )
    (measurement,) = contents.latest().values()
    bundle = bundle_files(place)[0].relative_to(folder)
    value = measurement.metrics.get(metric)
    return Reading(measurement.status.value, value, contents.header.commit, str(bundle))
