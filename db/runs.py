"""Runs, and the nights that they make up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select

from db.connecting import Source, connected
from db.queries.moments import from_epoch, moment_of
from db.schema import Commit, Run, Testbed


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run with its counts of cells. `finished_at` is None for a run without an end record: cut, or still going."""

    run_id: str
    night: str
    branch: str
    repo: str
    commit: str
    commit_date: datetime | None
    commit_title: str | None
    testbed_id: str
    testbed: dict[str, Any]
    trigger: str
    label: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None
    tool_version: str
    ci_url: str
    bundle: str
    planned: int
    measured: int
    statuses: dict[str, int]

    @property
    def missing(self) -> int:
        """Cells that were expected and have no measurement."""
        return self.planned - self.measured


@dataclass(frozen=True, slots=True)
class NightInfo:
    """The runs of one night, newest first; most nights are one run. The counts are of cells, over all of them."""

    night: str
    runs: tuple[RunInfo, ...]

    @property
    def started_at(self) -> datetime:
        """When its newest run started: by this nights are ordered."""
        return self.runs[0].started_at

    @property
    def statuses(self) -> dict[str, int]:
        """How many cells ended how."""
        return dict(sum((Counter(run.statuses) for run in self.runs), Counter()))

    @property
    def missing(self) -> int:
        """Cells that were expected and have no measurement."""
        return sum(run.missing for run in self.runs)

    @property
    def place(self) -> str:
        """What it was measured on: `NVIDIA H200`, or `4 x NVIDIA H200`."""
        return describe_places(run.testbed for run in self.runs)


def list_runs(source: Source, *, branch: str | None = None, limit: int | None = None) -> list[RunInfo]:
    """Runs, newest first."""
    where = () if branch is None else (Run.branch == branch,)
    return _listed(source, newest_runs(*where).limit(limit))


def list_nights(source: Source, *, branch: str | None = None, limit: int | None = None) -> list[NightInfo]:
    """Nights with their runs, newest first; with a branch what they ran of it."""
    where = [] if branch is None else [Run.branch == branch]
    with connected(source) as conn:
        names = conn.execute(newest_nights(*where).limit(limit)).scalars().all()
        runs = _listed(conn, newest_runs(*where, *([] if limit is None else [Run.night.in_(names)])))
    found: dict[str, list[RunInfo]] = {name: [] for name in names}
    for run in runs:
        found[run.night].append(run)
    return [NightInfo(name, tuple(of_night)) for name, of_night in found.items()]


def newest_nights(*where: ColumnElement[bool]) -> Select[str]:
    """The names of nights, the one whose newest run started last first."""
    newest = func.max(Run.started_at).desc()
    return select(Run.night).where(*where).group_by(Run.night).order_by(newest, Run.night.desc())


def describe_places(testbeds: Iterable[Mapping[str, Any]]) -> str:
    """The devices of some runs, each once, with how many there are of it."""
    places: dict[str, set[str]] = {}
    for testbed in testbeds:
        which = f"{testbed.get('node')}/{testbed.get('gpu_index')}"
        places.setdefault(device_name(testbed), set()).add(which)
    return " and ".join(name if len(which) == 1 else f"{len(which)} x {name}" for name, which in places.items())


def device_name(testbed: Mapping[str, Any]) -> str:
    """The device of a testbed in the shortest words that it has; empty where it has none."""
    return str(testbed.get("gpu") or testbed.get("accelerator") or testbed.get("cpu") or "")


def newest_runs(*where: ColumnElement[bool]) -> Select[Any]:
    """Runs with their commit and testbed, the one that started last first."""
    return (
        select(Run, Commit.repo, Commit.sha, Commit.author_date, Commit.title, Testbed.testbed_id, Testbed.data)
        .join(Commit, Run.commit == Commit.id)
        .join(Testbed, Run.testbed == Testbed.id)
        .where(*where)
        .order_by(Run.started_at.desc(), Run.run_id.desc())
    )


def _listed(source: Source, query: Select[Any]) -> list[RunInfo]:
    with connected(source) as conn:
        rows = conn.execute(query).all()
    return [
        RunInfo(
            run_id=row.run_id,
            night=row.night,
            branch=row.branch,
            repo=row.repo,
            commit=row.sha,
            commit_date=moment_of(row.author_date),
            commit_title=row.title,
            testbed_id=row.testbed_id,
            testbed=row.data,
            trigger=row.trigger,
            label=row.label,
            attempt=row.attempt,
            started_at=from_epoch(row.started_at),
            finished_at=moment_of(row.finished_at),
            tool_version=row.tool_version,
            ci_url=row.ci_url,
            bundle=row.bundle,
            planned=row.planned,
            measured=row.measured,
            statuses=row.statuses,
        )
        for row in rows
    ]
