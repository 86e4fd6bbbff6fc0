"""The cells of one side of a comparison, with a row for every cell that its runs planned or measured; and runs of promises.

A run of promises has planned cells and no measurement, so that a shard that never arrived shows as missing and not as absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pandas as pd
from sqlalchemy import Connection, Engine, Select, delete, func, select

from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, PYTORCH_CHECK, Status, judged_otherwise, passes_pytorch
from db.connecting import Query, Source, changing, connected, framed
from db.nights import RunInfo, list_nights
from db.queries.cells import CELL_COLUMNS, EVERYTHING, CellFilter, CellName, names_query
from db.queries.details import evidence, same_code_as, with_kernels
from db.queries.sides import Side
from db.schema import CellRow, Environment, Planned, Run, measurements, results
from db.store_errors import StoreError, one_line
from db.stored_values import moment_of

#: Columns that a measurement adds to a cell's names; all of them are empty (None or NaN) in a row whose cell is missing.
MEASURED_COLUMNS = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id"),
    *("code_id", "stage", "exception", "message", "hint", "spread", *METRICS),
)


@dataclass(frozen=True, slots=True)
class CellState:
    """A cell on one side of a comparison: its newest measurement there, as far as there is one.

    Attributes:
        cell: its name; None where the side neither planned nor measured it.
        status: None where it was planned and never measured, as everything below.
        started_at: when the measurement began, in UTC; `wall_s` is how many seconds it took.
        spread: the robust relative spread of the samples of `compiled_ms`.
        values: the measured values by metric, in the metric's unit.
        same_code_as: the night whose result counts for a cell that was not timed again, since its code is known.
    """

    cell: CellName | None = None
    run_id: str | None = None
    testbed_id: str | None = None
    replicate: int | None = None
    status: str | None = None
    started_at: datetime | None = None
    wall_s: float | None = None
    program_id: str | None = None
    environment_id: str | None = None
    code_id: str | None = None
    stage: str | None = None
    exception: str | None = None
    message: str | None = None
    hint: str | None = None
    spread: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    same_code_as: str | None = None

    @property
    def is_expected(self) -> bool:
        """Return whether the side planned the cell, or measured it without a plan."""
        return self.cell is not None

    @property
    def cell_id(self) -> str | None:
        """Return the id of the cell; None where the side does not expect it."""
        return self.cell.cell_id if self.cell else None

    @property
    def passes(self) -> bool:
        """Return whether the cell was measured and passed."""
        return self.status == Status.PASS.value

    @property
    def is_not_applicable(self) -> bool:
        """Return whether the cell's status is one of `NOT_APPLICABLE`, such as unavailable, skipped or not checked."""
        return self.status in NOT_APPLICABLE

    @property
    def fails(self) -> bool:
        """Return whether the cell was measured and failed."""
        return self.status is not None and not self.passes and not self.is_not_applicable

    @property
    def passes_pytorch(self) -> bool | None:
        """Return whether PyTorch's own accuracy check passes the cell; None where that is not known."""
        return passes_pytorch(self.status, self.values.get(PYTORCH_CHECK))

    @property
    def is_judged_otherwise(self) -> bool:
        """Return whether PyTorch's own accuracy check judges the cell otherwise than the status."""
        return judged_otherwise(self.status, self.values.get(PYTORCH_CHECK))


#: A cell that a side does not expect.
NOT_PLANNED = CellState()


def details_behind(source: Source, state: CellState) -> dict[str, Any]:
    """Return the details of the measurement behind a cell's state, see `with_kernels`; empty where there is none."""
    if state.run_id is None or state.cell_id is None:
        return {}
    with connected(source) as conn:
        own, _ = evidence(conn, state.run_id, state.cell_id, state.replicate)
        return with_kernels(conn, state.cell_id, own)


def side_cells(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> list[CellState]:
    """Return the cells that a side expects, sorted by suite, model and config.

    Of several measurements of a cell (by several runs of the side, or as replicates of one run) the one that started last
    counts.
    """
    width, own = len(CELL_COLUMNS), len(CELL_COLUMNS) + len(MEASURED_COLUMNS) - len(METRICS)
    with connected(source) as conn:
        rows, _ = _rows(conn, side, filters, tuple(METRICS))
        states = [_state(row[:width], row[width:own], row[own:]) for row in rows]
        if not any(state.code_id and "compiled_ms" not in state.values for state in states):
            return states
        nights = same_code_as(conn, side.keys)
    keys = [(state.run_id, state.cell_id, state.replicate) for state in states]
    return [
        replace(state, same_code_as=night) if (night := nights.get(key)) else state  # type: ignore[arg-type]
        for key, state in zip(keys, states, strict=True)
    ]


def _state(names: Sequence[Any], measured: Sequence[Any], metrics: Sequence[Any]) -> CellState:
    run_id, testbed_id, replicate, status, started_at, *others = measured
    values = {name: value for name, value in zip(METRICS, metrics, strict=True) if value is not None}
    fields: tuple[Any, ...] = (run_id, testbed_id, replicate, status, moment_of(started_at), *others, values)
    return CellState(CellName(*names), *fields)


def side_rows(
    source: Source, side: Side, filters: CellFilter = EVERYTHING, *, metrics: Sequence[str] = tuple(METRICS)
) -> pd.DataFrame:
    """Return the cells of `side_cells` as a frame of `CELL_COLUMNS` and `MEASURED_COLUMNS`, for exports.

    Of the metrics only those that `metrics` names are read. Raises `KeyError` for a metric that does not exist.
    """
    rows, query = _rows(source, side, filters, metrics)
    table = framed(rows, query.selected_columns)
    return table.assign(
        started_at=pd.to_datetime(table["started_at"], unit="s", utc=True), replicate=table["replicate"].astype("Int64")
    )


def _rows(source: Source, side: Side, filters: CellFilter, metrics: Sequence[str]) -> tuple[list[Sequence[Any]], Query]:
    """Return a row for each expected cell in the order of their names, and the select whose columns the rows have."""
    unwanted = METRICS.keys() - {METRICS[name].name for name in metrics}
    columns = [*CELL_COLUMNS, *(name for name in MEASURED_COLUMNS if name not in unwanted)]
    query = select(*(results.c[name] for name in columns)).where(results.c.run_id.in_(side.run_ids))
    oldest_first = (results.c.started_at, results.c.run_started_at, results.c.run_id, results.c.replicate)
    planned = names_query().join(Planned, Planned.cell == CellRow.id).where(Planned.run.in_(side.keys))
    absent = (None,) * (len(columns) - len(CELL_COLUMNS))
    with connected(source) as conn:
        measured = conn.execute(query.where(*filters.of_results()).order_by(*oldest_first)).all()
        expected = conn.execute(planned.where(*filters.conditions())).all()
    rows: dict[str, Sequence[Any]] = {row[0]: row for row in measured}  # by cell_id: the newest of several remains
    for names in expected:
        rows.setdefault(names[0], (*names, *absent))
    return sorted(rows.values(), key=lambda row: tuple(row[1 : len(CELL_COLUMNS)])), query


def side_environments(source: Source, side: Side) -> dict[str, dict[str, Any]]:
    """Return the fingerprints under which a side's cells were measured, by `environment_id`; lost records are left out."""
    used = select(measurements.c.environment).where(measurements.c.run.in_(side.keys)).distinct()
    query = select(Environment.environment_id, Environment.data).where(
        Environment.data.is_not(None), Environment.id.in_(used)
    )
    with connected(source) as conn:
        return {row.environment_id: row.data for row in conn.execute(query)}


@dataclass(frozen=True, slots=True)
class TakenOn:
    """The runs of a night, newest first, and the `cell_id` of every cell that one of them planned or measured."""

    runs: tuple[RunInfo, ...]
    cells: frozenset[str]


def taken_on(source: Source, night: str, besides: str) -> TakenOn:
    """Return the runs of a night and their cells, the run `besides` (by id) left out; nothing where the night is not known."""
    with connected(source) as conn:
        runs = [run for of_night in list_nights(conn) if of_night.night == night for run in of_night.runs]
        chosen = tuple(run for run in runs if run.run_id != besides)
        keys = select(Run.id).where(Run.run_id.in_([run.run_id for run in chosen]))
        return TakenOn(chosen, frozenset(_cells(conn, keys)))


def drop_promises(target: Engine | Connection, run_id: str, unless: Collection[str]) -> bool:
    """Remove a run of promises, unless it promises exactly the cells of these `cell_id`; return whether it was removed.

    Raises `StoreError` where the run has measurements, or the database cannot be written.
    """
    with changing(target) as change:
        key = change.conn.execute(select(Run.id).where(Run.run_id == run_id)).scalar()
        if key is None:
            return False
        count = select(func.count()).select_from(measurements).where(measurements.c.run == key)
        if change.conn.execute(count).scalar_one():
            raise StoreError(f"run {one_line(run_id)} has measurements: it is no list of what never arrived, and stays")
        if _cells(change.conn, select(Run.id).where(Run.id == key)) == set(unless):
            return False
        change.conn.execute(delete(Run).where(Run.id == key))
        change.made = True
        return True


def _cells(conn: Connection, runs: Select[int]) -> set[str]:
    cell_ids: set[str] = set()
    for column, run in ((Planned.cell, Planned.run), (measurements.c.cell, measurements.c.run)):
        query = select(CellRow.cell_id).join_from(CellRow, column.table, CellRow.id == column)
        cell_ids.update(conn.execute(query.where(run.in_(runs))).scalars())
    return cell_ids
