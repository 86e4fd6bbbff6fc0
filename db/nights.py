"""Runs, the nights that they make up, the names of nights, and the counts and averages of each run."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    SQLColumnExpression,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, aliased

from collector.bundle import CENSUS, CONFIRM
from collector.code import NAME_OF_SOURCE
from collector.vocabulary import NOT_APPLICABLE, Status
from db.connecting import Source, connected
from db.schema import (
    GEOMEANS,
    MEANS,
    CellRow,
    Commit,
    Environment,
    Model,
    Planned,
    Run,
    Testbed,
    measurements,
    summaries,
)
from db.stored_values import from_epoch, moment_of

_RELEASE = re.compile(r"(\d+\.\d+\.\d+)(\+\S*)?")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run. `planned`, `measured` and `statuses` count cells; `key` is its number in this database only.

    `finished_at` is None for a run without an end record: it was cut, or is still going. `release` is the release of torch
    that was measured, such as `2.12.1`; empty for other builds. `usage` says how the run used its machine, in the form of
    `jobs.pool.usage`.
    """

    key: int = field(compare=False)
    run_id: str
    night: str
    branch: str
    commit: str
    repo: str
    testbed_id: str
    testbed: dict[str, Any]
    label: str
    started_at: datetime
    finished_at: datetime | None = None
    commit_date: datetime | None = None
    commit_title: str | None = None
    trigger: str = ""
    attempt: int = 1
    tool_version: str = ""
    ci_url: str = ""
    bundle: str = ""
    planned: int = 0
    measured: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    release: str = ""
    usage: dict[str, Any] | None = None

    @property
    def missing(self) -> int:
        """The number of cells that were expected and have no measurement."""
        return self.planned - self.measured


@dataclass(frozen=True, slots=True)
class NightInfo:
    """The runs of one night, newest first; most nights are one run. The counts are of cells, over all of them.

    A run that measures cells of the night again (`CONFIRM`) belongs to the night, but does not change the night's start.
    """

    night: str
    runs: tuple[RunInfo, ...]

    @property
    def started_at(self) -> datetime:
        """The start of its newest run that is no confirmation (`CONFIRM`). Nights are ordered by it."""
        return next((run for run in self.runs if run.trigger != CONFIRM), self.runs[0]).started_at

    @property
    def statuses(self) -> dict[str, int]:
        """The number of cells by status."""
        return dict(sum((Counter(run.statuses) for run in self.runs), Counter()))

    @property
    def missing(self) -> int:
        """The number of cells that were expected and have no measurement."""
        return sum(run.missing for run in self.runs)

    @property
    def place(self) -> str:
        """The devices that measured the night: `NVIDIA H200`, or `4 x NVIDIA H200`."""
        return describe_places(run.testbed for run in self.runs)


def list_runs(source: Source) -> list[RunInfo]:
    """Return all runs, newest first."""
    with connected(source) as conn:
        return find_runs(conn)


def list_nights(
    source: Source, *, branch: str | None = None, limit: int | None = None, with_census: bool = False
) -> list[NightInfo]:
    """Return nights with their runs, newest first; with a branch, only its runs. Include a census only with `with_census`."""
    where = [] if branch is None else [Run.branch == branch]
    where += [] if with_census else [is_measured()]
    with connected(source) as conn:
        names = conn.execute(newest_nights(*where).limit(limit)).scalars().all()
        runs = find_runs(conn, *where, *([] if limit is None else [Run.night.in_(names)]))
    by_night: dict[str, list[RunInfo]] = {name: [] for name in names}
    for run in runs:
        by_night[run.night].append(run)
    return [NightInfo(name, tuple(of_night)) for name, of_night in by_night.items()]


def is_measured() -> ColumnElement[bool]:
    """Return the condition that a run measured its cells: a census only generated their code."""
    return Run.trigger != CENSUS


def newest_nights(*where: ColumnElement[bool]) -> Select[str]:
    """Return a select of the names of nights, the one whose newest run started last first."""
    own = func.max(case((Run.trigger != CONFIRM, Run.started_at)))
    newest = func.coalesce(own, func.max(Run.started_at)).desc()
    return select(Run.night).where(*where).group_by(Run.night).order_by(newest, Run.night.desc())


def order_in_time() -> tuple[ColumnElement[Any] | InstrumentedAttribute[float], ...]:
    """Return the columns that order runs by their start, oldest first; runs that confirm a night stand behind the night.

    So a base that is measured again stands before the night that it is compared with.
    """
    of_night = aliased(Run)
    last = select(func.max(of_night.started_at)).where(of_night.night == Run.night, of_night.trigger != CONFIRM)
    own = func.coalesce(last.scalar_subquery(), Run.started_at)
    is_again = case((Run.trigger == CONFIRM, 1), else_=0)
    return case((Run.trigger == CONFIRM, own), else_=Run.started_at), is_again, Run.started_at


def describe_places(testbeds: Iterable[Mapping[str, Any]]) -> str:
    """Return the names of the devices of some testbeds, each once, with the number of devices if there are several of a name."""
    places: dict[str, set[str]] = {}
    for testbed in testbeds:
        which = f"{testbed.get('node')}/{testbed.get('gpu_index')}"
        places.setdefault(device_name(testbed), set()).add(which)
    return " and ".join(name if len(which) == 1 else f"{len(which)} x {name}" for name, which in places.items())


def device_name(testbed: Mapping[str, Any]) -> str:
    """Return the device of a testbed by its GPU, accelerator or CPU, the first that the testbed has; empty without any."""
    return str(testbed.get("gpu") or testbed.get("accelerator") or testbed.get("cpu") or "")


def find_runs(conn: Connection, *where: ColumnElement[bool]) -> list[RunInfo]:
    """Return the runs that meet some conditions on runs and commits, the one that started last first."""
    columns = (Run.night, Run.branch, Run.label, Run.trigger, Run.attempt, Run.tool_version, Run.ci_url, Run.bundle)
    query = (
        select(Run.id.label("key"), Run.run_id, *columns, Run.planned, Run.measured, Run.statuses, Run.usage)
        .add_columns(Run.started_at, Run.finished_at, Commit.repo, Commit.sha.label("commit"))
        .add_columns(Commit.author_date.label("commit_date"), Commit.title.label("commit_title"))
        .add_columns(Testbed.testbed_id, Testbed.data.label("testbed"), _torch().label("release"))
        .join(Commit, Run.commit == Commit.id)
        .join(Testbed, Run.testbed == Testbed.id)
        .where(*where)
        .order_by(Run.started_at.desc(), Run.run_id.desc())
    )
    times = ("started_at", "finished_at", "commit_date")
    rows = conn.execute(query).mappings().all()
    return [
        RunInfo(**{**row, **{name: moment_of(row[name]) for name in times}, "release": _release(row["release"])})
        for row in rows
    ]


def _torch() -> ScalarSelect[str]:
    """Return a query for the torch of a run's first measurement; NULL unless it was built from the run's commit."""
    torch, sha = (Environment.data[name].as_string() for name in ("torch", "torch_git"))
    row = measurements.c
    first = select(row.environment).where(row.run == Run.id).order_by(row.cell).limit(1).correlate(Run)
    query = select(torch).where(Environment.id == first.scalar_subquery(), sha == Commit.sha)
    return query.correlate(Run, Commit).scalar_subquery()


def local_commits(source: Source) -> frozenset[str]:
    """Return the commits that only a local clone has: laid over a wheel, of no imported main line and no pull request.

    The host of their repository does not have them.
    """
    row = measurements.c
    first = select(row.environment).where(row.run == Run.id).order_by(row.cell).limit(1).correlate(Run)
    query = (
        select(Commit.sha)
        .join(Run, Run.commit == Commit.id)
        .join(Environment, Environment.id == first.scalar_subquery())
        .where(Commit.position.is_(None), Commit.pr_number.is_(None))
        .where(Environment.data[NAME_OF_SOURCE].as_string().is_not(None))
    )
    with connected(source) as conn:
        return frozenset(conn.execute(query.distinct()).scalars())


def _release(torch: str | None) -> str:
    match = _RELEASE.fullmatch(torch or "")
    return match[1] if match else ""


#: Runs with one name belong to one night if the pause between them is shorter: hosts of a cluster wait for their turn.
_PAUSE_S = 12 * 3600


def unique_night(conn: Connection, run: Mapping[str, Any], commit: int) -> str:
    """Return the name under which the store has the night of a run: the given name, with a time if another night has it.

    `run` is the row to be stored, `commit` the number of its commit. Runs with one name belong to one night if branch and commit
    agree and no long pause lies between them; a run that confirms a night (`CONFIRM`) may come on a later day. A stored night
    keeps its name, so that addresses stay valid.
    """
    name = run["night"]
    if name == run["run_id"]:
        return str(name)
    columns = (Run.run_id, Run.night, Run.branch, Run.commit, Run.started_at, Run.finished_at)
    stored = conn.execute(select(*columns).where(called(Run.night, name))).all()
    for other in stored:
        if other.run_id == run["run_id"]:
            return str(other.night)
    begin, end = _span(run["started_at"], run["finished_at"])
    for other in stored:
        other_begin, other_end = _span(other.started_at, other.finished_at)
        is_near = other_begin - end < _PAUSE_S and begin - other_end < _PAUSE_S
        is_near |= run["trigger"] == CONFIRM
        if is_near and (other.branch, other.commit) == (run["branch"], commit):
            return str(other.night)
    if not any(other.night == name for other in stored):
        return str(name)
    return f"{name}@{from_epoch(begin):%Y%m%d-%H%M%S}"


def called(night: SQLColumnExpression[str], name: str) -> ColumnElement[bool]:
    """Return the condition that people gave a stored night this name: it has the name, with or without a time."""
    return or_(night == name, night.startswith(f"{name}@", autoescape=True))


def _span(started_at: float, finished_at: float | None) -> tuple[float, float]:
    """Return the start and the end of a run; a run without an end counts as just begun."""
    return started_at, max(started_at, finished_at or 0.0)


#: The columns that define a group of cells; `config` is the database's number.
GROUP = ("suite", "phase", "dtype", "device", "config")
_AXES = (Model.suite, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.config)


def refresh(conn: Connection, run: int) -> None:
    """Write the summaries of a run, and the counts in its own row."""
    rows, counts = computed(conn, run)
    conn.execute(delete(summaries).where(summaries.c.run == run))
    if rows:
        conn.execute(insert(summaries), rows)
    conn.execute(update(Run).where(Run.id == run).values(counts))


def computed(conn: Connection, run: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the summaries of a run, and the counts for its own row, from its plan and its measurements.

    Of several replicates of a cell the one that started last counts.
    """
    row = measurements.c
    query = select(CellRow.id, *_AXES).join(Model, Model.id == CellRow.model)
    planned = query.join(Planned, Planned.cell == CellRow.id).where(Planned.run == run)
    measured = query.add_columns(row.status, row.code_id, *(row[name] for name in (*GEOMEANS, *MEANS)))
    measured = measured.join(measurements, row.cell == CellRow.id).where(row.run == run)
    groups: dict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
    for cell, *group in conn.execute(planned):
        groups[tuple(group)][cell] = None
    for measurement in conn.execute(measured.order_by(row.started_at, row.replicate)):
        groups[tuple(measurement[1:6])][measurement.id] = measurement
    rows = [
        {"run": run, **dict(zip(GROUP, group, strict=True)), **_summary(list(cells.values()))}
        for group, cells in groups.items()
    ]
    statuses = Counter(
        measurement.status for cells in groups.values() for measurement in cells.values() if measurement is not None
    )
    counts = {"planned": sum(map(len, groups.values())), "measured": statuses.total(), "statuses": dict(statuses)}
    return rows, counts


def _summary(cells: Sequence[Any]) -> dict[str, Any]:
    measured = [row for row in cells if row is not None]
    passing = [row for row in measured if row.status == Status.PASS]
    not_applicable = sum(row.status in NOT_APPLICABLE for row in measured)
    summary: dict[str, Any] = {
        "planned": len(cells),
        "measured": len(measured),
        "passed": len(passing),
        "failed": len(measured) - len(passing) - not_applicable,
        "not_applicable": not_applicable,
    }
    # Cells that were not timed again, since their code is known, belong to the average, too. If one of them lacks a metric,
    # the metric has no average: over the other cells it would be another figure.
    untimed = [row for row in passing if row.code_id is not None and row.compiled_ms is None]
    is_whole = {name: all(getattr(row, name) is not None for row in untimed) for name in (*GEOMEANS, *MEANS)}
    for name in (*GEOMEANS, *MEANS):
        values = [value for row in passing if is_whole[name] and (value := getattr(row, name)) is not None]
        if name in GEOMEANS:
            values = [math.log(value) for value in values if value > 0]
        mean = math.fsum(values) / len(values) if values else None
        summary |= {f"n_{name}": len(values), name: math.exp(mean) if mean is not None and name in GEOMEANS else mean}
    return summary
