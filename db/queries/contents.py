"""All that a database holds of one run, by public names alone: two databases of one bundle must not differ in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from db.arrays import unpack
from db.schema import (
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

Key = tuple[str, int]

#: Columns of a run that bundles do not decide alone: what ingest counts, and this database's own numbers.
_COUNTED = frozenset({"id", "commit", "testbed", "planned", "measured", "statuses"})
_NUMBERS = frozenset({"run", "cell", "program", "environment"})


@dataclass(slots=True)
class RunContents:
    """One run. Measurements, evidence and samples are under `cell_id` and replicate; samples are packed as they lie.

    What was thinned out by age is None: the texts of an evidence row, the values of samples.
    """

    head: dict[str, Any]
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured: dict[Key, dict[str, Any]] = field(default_factory=dict)
    evidence: dict[Key, dict[str, Any]] = field(default_factory=dict)
    samples: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)


def run_contents(conn: Connection, run_id: str) -> RunContents | None:
    """What is stored of a run; None if there is none of that name."""
    run = conn.execute(
        select(Run, Commit.repo, Commit.sha, Testbed.testbed_id, Testbed.data.label("testbed_data"))
        .join(Commit, Commit.id == Run.commit)
        .join(Testbed, Testbed.id == Run.testbed)
        .where(Run.run_id == run_id)
    ).first()
    if run is None:
        return None
    found = RunContents({name: value for name, value in run._asdict().items() if name not in _COUNTED})
    found.expected = _expected(conn, run.id)
    names = _cell_ids(conn, run.id)
    query = (
        select(measurements, Program.program_id, Program.options, Environment.environment_id, Environment.data)
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
        .where(measurements.c.run == run.id)
    )
    for row in conn.execute(query).mappings():
        values = {name: value for name, value in row.items() if name not in _NUMBERS}
        found.measured[names[row["cell"]], row["replicate"]] = values
    for row in conn.execute(select(Evidence).where(Evidence.run == run.id)).mappings():
        found.evidence[names[row["cell"]], row["replicate"]] = {k: row[k] for k in ("details", "log_tail")}
    for row in conn.execute(select(Samples).where(Samples.run == run.id)).mappings():
        found.samples[names[row["cell"]], row["replicate"], row["metric"]] = _sample(row)
    return found


def _sample(row: Any) -> dict[str, Any]:
    kept = row["data"] is not None
    # Unpacked: another zlib may make other bytes of the same samples.
    values = unpack(row["number_format"], row["data"]).tobytes() if kept else None
    return {"count": row["count"], "spread": row["spread"], "values": values}


def _expected(conn: Connection, run: int) -> dict[str, dict[str, Any]]:
    """The cells that the run planned or measured, with all that names them."""
    of_cell = (CellRow.cell_id, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    query = (
        select(*of_cell, Model.suite, Model.name.label("model"), ConfigRow.config_id, ConfigRow.request)
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
        .where(CellRow.id.in_(_cells(run)))
    )
    return {row["cell_id"]: dict(row) for row in conn.execute(query).mappings()}


def _cell_ids(conn: Connection, run: int) -> dict[int, str]:
    query = select(CellRow.id, CellRow.cell_id).where(CellRow.id.in_(_cells(run)))
    return {row.id: row.cell_id for row in conn.execute(query)}


def _cells(run: int) -> Any:
    planned = select(Planned.cell).where(Planned.run == run)
    return planned.union(select(measurements.c.cell).where(measurements.c.run == run))
