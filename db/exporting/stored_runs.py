"""A run as the database has it, in the form of a bundle's contents: what every export of whole runs is made from."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select

from collector.bundle import BundleContents, RunHeader
from collector.metrics import METRICS
from collector.vocabulary import Cell, Config, Failure, Measurement, Phase, Stage, Status
from db.arrays import unpack
from db.connecting import Source, connected
from db.queries.moments import from_epoch
from db.schema import (
    Branch,
    CellRow,
    Commit,
    ConfigRow,
    Environment,
    Evidence,
    Model,
    Planned,
    Program,
    Run,
    Samples,
    Testbed,
    measurements,
)

_Key = tuple[int, int]


def stored_run(source: Source, run_id: str) -> BundleContents:
    """All that the database has of a run: its header but for how it was asked for, its plan, its measurements.

    Measurements come in the order in which the bundle told them. Samples that were thinned out are not there any more.

    Raises:
        KeyError: there is no such run.
    """
    with connected(source) as conn:
        run = conn.execute(
            select(Run, Commit.repo, Commit.sha, Commit.author_date, Commit.title, Testbed.data)
            .join(Commit, Run.commit == Commit.id)
            .join(Testbed, Run.testbed == Testbed.id)
            .where(Run.run_id == run_id)
        ).first()
        if run is None:
            raise KeyError(run_id)
        contents = BundleContents(_header(conn, run), attempt=run.attempt)
        contents.finished_at = None if run.finished_at is None else from_epoch(run.finished_at).isoformat()
        cells = _cells(conn, run.id)
        # What was measured was expected too: the table of plans keeps only what is still to come.
        contents.planned = [cells[cell] for cell in sorted(cells)]
        contents.measurements = _measurements(conn, run.id, cells)
        contents.programs = _used(conn, Program.program_id, Program.options, Program.id, "program", run.id)
        contents.environments = _used(
            conn, Environment.environment_id, Environment.data, Environment.id, "environment", run.id
        )
    return contents


def _header(conn: Connection, run: Any) -> RunHeader:
    start = conn.execute(
        select(Commit.sha)
        .join(Branch, Branch.start == Commit.id)
        .where(Branch.repo == run.repo, Branch.name == run.branch)
    ).scalar()
    return RunHeader(
        run_id=run.run_id,
        branch=run.branch,
        commit=run.sha,
        testbed=run.data,
        started_at=from_epoch(run.started_at).isoformat(),
        repo=run.repo,
        trigger=run.trigger,
        label=run.label,
        attempt=run.attempt,
        commit_date=None if run.author_date is None else from_epoch(run.author_date).isoformat(),
        commit_title=run.title,
        tool_version=run.tool_version,
        night=run.night,
        ci_url=run.ci_url,
        branch_start=start or "",
    )


def _cells(conn: Connection, run: int) -> dict[int, Cell]:
    """The cells that a run planned or measured, by the database's own numbers."""
    planned = select(Planned.cell).where(Planned.run == run)
    wanted = planned.union(select(measurements.c.cell).where(measurements.c.run == run))
    query = (
        select(CellRow, Model.suite, Model.name.label("model_name"), ConfigRow.request)
        .join(Model, CellRow.model == Model.id)
        .join(ConfigRow, CellRow.config == ConfigRow.id)
        .where(CellRow.id.in_(wanted))
    )
    return {
        row.id: Cell(
            row.suite,
            row.model_name,
            Phase(row.phase),
            row.dtype,
            row.device,
            row.batch_size,
            Config.from_json(row.request),
        )
        for row in conn.execute(query)
    }


def _measurements(conn: Connection, run: int, cells: dict[int, Cell]) -> list[Measurement]:
    evidence = {
        (row.cell, row.replicate): row for row in conn.execute(select(Evidence.__table__).where(Evidence.run == run))
    }
    samples = _samples(conn, run)
    query = (
        select(measurements, Program.program_id, Environment.environment_id)
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
        .where(measurements.c.run == run)
        .order_by(measurements.c.version, measurements.c.cell, measurements.c.replicate)
    )
    found: list[Measurement] = []
    for row in conn.execute(query):
        key = (row.cell, row.replicate)
        behind = evidence.get(key)
        found.append(
            Measurement(
                cell=cells[row.cell],
                status=Status(row.status),
                started_at=from_epoch(row.started_at).isoformat(),
                wall_s=row.wall_s,
                metrics={name: value for name in METRICS if (value := getattr(row, name)) is not None},
                samples=samples.get(key, {}),
                details=json.loads(behind.details or "{}") if behind else {},
                program_id=row.program_id,
                environment_id=row.environment_id,
                failure=_failure(row),
                log_tail=behind.log_tail if behind else None,
                replicate=row.replicate,
            )
        )
    return found


def _failure(row: Any) -> Failure | None:
    return None if row.stage is None else Failure(Stage(row.stage), row.exception, row.message, row.hint)


def _samples(conn: Connection, run: int) -> dict[_Key, dict[str, list[float]]]:
    found: dict[_Key, dict[str, list[float]]] = {}
    query = select(Samples.__table__).where(Samples.run == run, Samples.data.is_not(None)).order_by(Samples.metric)
    for row in conn.execute(query):
        values = [float(value) for value in unpack(row.number_format, row.data)]
        found.setdefault((row.cell, row.replicate), {})[row.metric] = values
    return found


def _used(conn: Connection, name: Any, value: Any, identity: Any, column: str, run: int) -> dict[str, dict[str, Any]]:
    """The records of one kind that a run's measurements name; those that were lost are left out."""
    used = select(measurements.c[column]).where(measurements.c.run == run)
    query = select(name, value).where(identity.in_(used), value.is_not(None)).order_by(name)
    return {row[0]: row[1] for row in conn.execute(query)}
