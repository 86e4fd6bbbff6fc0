"""The census of a range of commits: which commit changed which cell's code, without a build and without a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.usage_errors import ConfigError
from collector.vocabulary import Cell
from jobs.builds.build_options import BuildError, SourceOptions
from jobs.builds.overlay import acting, differing
from jobs.census.census_pool import Answers, CensusPlace, CensusPool
from jobs.census.census_runs import CensusCell, CensusMemory, CensusRun
from jobs.git_log import Repository
from jobs.output.terminal import the_first
from jobs.requested_options import RequestedOptions, RunNames


@dataclass(frozen=True, slots=True)
class CommitCensus:
    """The census of one commit: its cells by `cell_id`, the cells whose code it changed, and the number of cells generated.

    The census took `seconds`. `acting` are the files that the commit changed and that act when a compiled program runs, whatever
    its code. `problem` says why the commit has no census: it needs a build.
    """

    sha: str
    title: str
    cells: Mapping[str, CensusCell] = field(default_factory=dict)
    changed: Sequence[CensusCell] = ()
    generated: int = 0
    seconds: float = 0.0
    acting: Sequence[str] = ()
    problem: str = ""
    bundle: Path | None = None

    def describe(self) -> str:
        """Return in a few words what the commit changed."""
        if self.problem:
            return self.problem
        known = sum(one.is_known for one in self.cells.values())
        how = f"{self.generated} generated" if self.generated else "none of their sources changed"
        how += f", {self.seconds:.0f} s"
        names = ", ".join(f"{one.cell.model} {one.cell.phase} {one.cell.config.name}" for one in self.changed)
        acts = f"; acts at run time: {the_first(self.acting)}" if self.acting else ""
        return f"{len(self.changed)} of {known} cells changed ({how})" + (f": {names}" if names else "") + acts

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {
            "commit": self.sha,
            "title": self.title,
            "cells": len(self.cells),
            "known": sum(one.is_known for one in self.cells.values()),
            "generated": self.generated,
            "seconds": round(self.seconds, 1),
            "changed": [one.to_json() for one in self.changed],
            "acting": list(self.acting),
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits `GOOD..BAD` of a clone along the first parents of BAD, oldest first; GOOD is the first of `commits`."""

    repository: Path
    commits: Sequence[str]

    @classmethod
    def parse(cls, repository: Path, text: str) -> CommitRange:
        """Return the range of a text. Raises `ConfigError` for another form, and `GitError` if GOOD did not land before BAD."""
        good, dots, bad = text.partition("..")
        if not dots or not good or not bad or bad.startswith("."):
            raise ConfigError(f"{text!r} is no range of commits: write GOOD..BAD")
        clone = Repository(repository.expanduser())
        first, last = clone.sha_of(good), clone.sha_of(bad)
        return cls(repository.expanduser(), [first, *clone.landed(first, last)])


def take_censuses(
    commits: CommitRange,
    cells: Sequence[Cell],
    place: CensusPlace,
    source: SourceOptions,
    asked: tuple[RunNames, RequestedOptions],
    memory: CensusMemory,
    folder: Path,
) -> Iterator[CommitCensus]:
    """Yield the census of each commit as it is done, oldest first; each has a bundle of its own in `folder`.

    A cell is generated for a commit only if a file differs that its code was generated from. Raises what `CensusPool.generate`
    raises.
    """
    titles = {
        commit.sha: commit.subject for commit in Repository(commits.repository).commits(enumerate(commits.commits))
    }
    before: dict[str, CensusCell] = {}
    overlay = ""
    for sha in commits.commits:
        title, began = titles.get(sha, ""), time.monotonic()
        at = replace(source, source=f"{commits.repository}@{sha}")
        try:
            found, bundle, new = take_commit(at, cells, place, asked, memory.answers, folder)
        except BuildError as error:
            yield CommitCensus(sha, title, problem=str(error))
            continue
        known = {cell_id: one for cell_id, one in found.items() if one.is_known}
        changed = [
            one for cell_id, one in known.items() if cell_id in before and before[cell_id].code_id != one.code_id
        ]
        generated = sum(not one.is_cached for one in found.values())
        acts = acting(Path(overlay), Path(new), differing(Path(overlay), Path(new))) if overlay else []
        seconds = time.monotonic() - began
        yield CommitCensus(sha, title, found, changed, generated, seconds, acts, bundle=bundle)
        before |= known
        overlay = new


def take_commit(
    source: SourceOptions,
    cells: Sequence[Cell],
    place: CensusPlace,
    asked: tuple[RunNames, RequestedOptions],
    answers: Mapping[str, Answers],
    folder: Path,
) -> tuple[dict[str, CensusCell], Path | None, str]:
    """Return the cells of the commit of `source` by `cell_id`, the bundle in `folder` that has them, and its overlay.

    Raises `BuildError` for a commit that needs a build, and what `CensusPool.generate` raises.
    """
    names, requested = source.applied(*asked)
    execution = requested.execution
    there = replace(place, overlay=execution.overlay, source=execution.source)
    with CensusPool(there, requested.settings) as pool, CensusRun(pool, cells, names, requested, folder) as run:
        found = {one.cell.cell_id: one for one in run.take(answers)}
    return found, run.path, execution.overlay
