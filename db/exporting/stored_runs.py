"""A run as the database has it, in the form of a bundle's contents: what every export of whole runs is made from."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select

from collector.bundle import BundleContents, RunHeader
from collector.metrics import METRICS
from collector.vocabulary import Cell, Failure, Measurement, Stage, Status
from db.arrays import unpack
from db.connecting import Source, connected
from db.queries.cell_names import names_query
from db.queries.details import CellInfo
from db.queries.moments import from_epoch
from db.runs import RunInfo, find_runs
from db.schema import (
    Branch,
    CellRow,
    Commit,
    ConfigRow,
    Environment,
    Evidence,
    Planned,
    Program,
    Run,
    Samples,
    measurements,
)

_Key = tuple[int, int]


def stored_run(source: Source, run_id: str) -> BundleContents:
    """All that the database has of a run: its header but for how it was asked for, its plan, its measurements.

    Measurements come in the order in which the bundle told them. Samples that were thinned out are not there any more.
    Raises `KeyError` where there is no such run.
    """
    with connected(source) as conn:
        runs = find_runs(conn, Run.run_id == run_id)
        if not runs:
            raise KeyError(run_id)
        (run,) = runs
        cells = _cells(conn, run.key)
        return BundleContents(
            _header(conn, run),
            # What was measured was expected too: the table of plans keeps only what is still to come.
            planned=[cells[cell] for cell in sorted(cells)],
            environments=_used(conn, Environment.environment_id, Environment.data, "environment", run.key),
            programs=_used(conn, Program.program_id, Program.options, "program", run.key),
            measurements=_measurements(conn, run.key, cells),
            finished_at=run.finished_at.isoformat() if run.finished_at else None,
            attempt=run.attempt,
        )


def _header(conn: Connection, run: RunInfo) -> RunHeader:
    of_branch = (Branch.repo == run.repo, Branch.name == run.branch)
    start = conn.execute(select(Commit.sha).join(Branch, Branch.start == Commit.id).where(*of_branch)).scalar()
    names = ("run_id", "branch", "commit", "testbed", "repo", "trigger", "label", "attempt", "commit_title")
    return RunHeader(
        **{name: getattr(run, name) for name in (*names, "tool_version", "night", "ci_url")},
        started_at=run.started_at.isoformat(),
        commit_date=run.commit_date.isoformat() if run.commit_date else None,
        branch_start=start or "",
    )


def _cells(conn: Connection, run: int) -> dict[int, Cell]:
    """The cells that a run planned or measured, by the database's own numbers."""
    planned = select(Planned.cell).where(Planned.run == run)
    wanted = planned.union(select(measurements.c.cell).where(measurements.c.run == run))
    query = names_query().add_columns(CellRow.id, ConfigRow.request).where(CellRow.id.in_(wanted))
    rows = conn.execute(query).mappings().all()
    of_cell = CellInfo.__dataclass_fields__
    return {row["id"]: CellInfo(**{name: row[name] for name in of_cell}).as_cell() for row in rows}


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
    measured: list[Measurement] = []
    for row in conn.execute(query):
        key = (row.cell, row.replicate)
        behind = evidence.get(key)
        failed = row.stage is not None
        measured.append(
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
                failure=Failure(Stage(row.stage), row.exception, row.message, row.hint) if failed else None,
                log_tail=behind.log_tail if behind else None,
                replicate=row.replicate,
                code_id=row.code_id,
            )
        )
    return measured


def _samples(conn: Connection, run: int) -> dict[_Key, dict[str, list[float]]]:
    by_cell: dict[_Key, dict[str, list[float]]] = {}
    query = select(Samples.__table__).where(Samples.run == run, Samples.data.is_not(None)).order_by(Samples.metric)
    for row in conn.execute(query):
        by_cell.setdefault((row.cell, row.replicate), {})[row.metric] = unpack(row.number_format, row.data).tolist()
    return by_cell


def _used(conn: Connection, name: Any, value: Any, column: str, run: int) -> dict[str, dict[str, Any]]:
    """The records of one kind that a run's measurements name; those that were lost are left out."""
    used = select(measurements.c[column]).where(measurements.c.run == run)
    query = select(name, value).where(name.table.c.id.in_(used), value.is_not(None)).order_by(name)
    return {row[0]: row[1] for row in conn.execute(query)}
