"""Everything about one measurement: its cell, numbers, samples, evidence, log, program and environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from collector.metrics import METRICS
from collector.vocabulary import Cell, Config, Phase
from db.arrays import unpack
from db.connecting import Source, connected
from db.queries.moments import from_epoch
from db.schema import CellRow, ConfigRow, Environment, Evidence, Model, Program, Run, Samples, measurements


@dataclass(frozen=True, slots=True)
class CellInfo:
    """One square of the matrix; `config` is the name, `request` what was asked for."""

    cell_id: str
    suite: str
    model: str
    phase: str
    dtype: str
    device: str
    batch_size: int
    config: str
    config_id: str
    request: dict[str, Any]

    def as_cell(self) -> Cell:
        """The collector's own value, for a repro command."""
        config = Config.from_json(self.request)
        return Cell(self.suite, self.model, Phase(self.phase), self.dtype, self.device, self.batch_size, config)


@dataclass(frozen=True, slots=True)
class MeasurementInfo:
    """One measurement. `metrics` holds only what was measured; `stage` and what follows are None unless it failed.

    `spread` is the robust relative spread of each sampled metric; `details` and `log_tail` are the evidence.
    """

    run_id: str
    cell: CellInfo
    replicate: int
    status: str
    started_at: datetime
    wall_s: float
    metrics: dict[str, float]
    spread: dict[str, float]
    stage: str | None
    exception: str | None
    message: str | None
    hint: str | None
    program_id: str | None
    environment_id: str | None
    details: dict[str, Any]
    log_tail: str | None


def cell(source: Source, cell_id: str) -> CellInfo | None:
    """The cell of that id, or None."""
    query = (
        select(CellRow, Model.suite, Model.name.label("model_name"))
        .add_columns(ConfigRow.config_id, ConfigRow.name.label("config_name"), ConfigRow.request)
        .join(Model, CellRow.model == Model.id)
        .join(ConfigRow, CellRow.config == ConfigRow.id)
        .where(CellRow.cell_id == cell_id)
    )
    with connected(source) as conn:
        row = conn.execute(query).first()
    if row is None:
        return None
    return CellInfo(
        cell_id=row.cell_id,
        suite=row.suite,
        model=row.model_name,
        phase=row.phase,
        dtype=row.dtype,
        device=row.device,
        batch_size=row.batch_size,
        config=row.config_name,
        config_id=row.config_id,
        request=row.request,
    )


def measurement(source: Source, run_id: str, cell_id: str, replicate: int | None = None) -> MeasurementInfo | None:
    """One measurement with its evidence; without `replicate` the newest one. None where the cell has no row in the run."""
    with connected(source) as conn:
        row, info = _row(conn, run_id, cell_id, replicate), cell(conn, cell_id)
        if row is None or info is None:
            return None
        details, log_tail = evidence(conn, run_id, cell_id, row.replicate)
        spreads = conn.execute(
            select(Samples.metric, Samples.spread).where(*_key(row), Samples.spread.is_not(None))
        ).all()
    return MeasurementInfo(
        run_id=run_id,
        cell=info,
        replicate=row.replicate,
        status=row.status,
        started_at=from_epoch(row.started_at),
        wall_s=row.wall_s,
        metrics={name: value for name in METRICS if (value := getattr(row, name)) is not None},
        spread={spread.metric: spread.spread for spread in spreads},
        stage=row.stage,
        exception=row.exception,
        message=row.message,
        hint=row.hint,
        program_id=row.program_id,
        environment_id=row.environment_id,
        details=details,
        log_tail=log_tail,
    )


def samples(source: Source, run_id: str, cell_id: str, replicate: int | None = None) -> dict[str, NDArray[np.float64]]:
    """Raw samples by metric, in the metric's unit and the order they were taken; empty where none were kept."""
    with connected(source) as conn:
        row = _row(conn, run_id, cell_id, replicate)
        if row is None:
            return {}
        found = conn.execute(
            select(Samples.metric, Samples.number_format, Samples.data).where(*_key(row), Samples.data.is_not(None))
        ).all()
    return {sample.metric: unpack(sample.number_format, sample.data) for sample in found}


def evidence(
    source: Source, run_id: str, cell_id: str, replicate: int | None = None
) -> tuple[dict[str, Any], str | None]:
    """Details (empty where there are none) and the end of the log (None where none was kept)."""
    with connected(source) as conn:
        row = _row(conn, run_id, cell_id, replicate)
        if row is None:
            return {}, None
        key = (Evidence.run == row.run, Evidence.cell == row.cell, Evidence.replicate == row.replicate)
        found = conn.execute(select(Evidence.details, Evidence.log_tail).where(*key)).first()
    return (json.loads(found.details or "{}"), found.log_tail) if found else ({}, None)


def program(source: Source, program_id: str) -> dict[str, Any] | None:
    """The effective options behind a `program_id`; None if it is unknown or its record was lost."""
    with connected(source) as conn:
        return conn.execute(select(Program.options).where(Program.program_id == program_id)).scalar()


def environment(source: Source, environment_id: str) -> dict[str, Any] | None:
    """The fingerprint behind an `environment_id`; None if it is unknown or its record was lost."""
    with connected(source) as conn:
        return conn.execute(select(Environment.data).where(Environment.environment_id == environment_id)).scalar()


def _row(conn: Connection, run_id: str, cell_id: str, replicate: int | None) -> Row[Any] | None:
    query = (
        select(measurements, Program.program_id, Environment.environment_id)
        .join(Run, Run.id == measurements.c.run)
        .join(CellRow, CellRow.id == measurements.c.cell)
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
        .where(Run.run_id == run_id, CellRow.cell_id == cell_id)
        .order_by(measurements.c.started_at.desc(), measurements.c.replicate.desc())
        .limit(1)
    )
    return conn.execute(query if replicate is None else query.where(measurements.c.replicate == replicate)).first()


def _key(row: Row[Any]) -> tuple[Any, ...]:
    return Samples.run == row.run, Samples.cell == row.cell, Samples.replicate == row.replicate
