"""How one cell, one model or one suite went from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import ColumnElement, Table, exists, select

from collector.metrics import METRICS
from db.base import Base
from db.connecting import Query, Source, connected, frame, moments
from db.filters import EVERYTHING, CellFilter
from db.schema import (
    HISTORY_METRICS,
    CellRow,
    Commit,
    ConfigRow,
    Model,
    Planned,
    Program,
    Run,
    Summary,
    Testbed,
    measurements,
)

_RUN = (Run.run_id, Run.branch, Run.started_at, Run.attempt, Run.label, Commit.sha.label("commit"), Testbed.testbed_id)
_GEOMEANS = ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression")


def cell_history(
    source: Source, cell_id: str, *, branch: str | None = None, metrics: Sequence[str] = HISTORY_METRICS
) -> pd.DataFrame:
    """One cell over all runs that planned or measured it, oldest run first.

    Columns: run_id, branch, commit, started_at (UTC), attempt, label, testbed_id, replicate, status, program_id and the
    metrics asked for (NaN where not measured). A run that planned the cell and has no measurement of it has a row
    without status and replicate. The default metrics are read from an index alone.

    Raises:
        KeyError: a metric that does not exist.
    """
    return _history(source, [CellRow.cell_id == cell_id], (), branch, metrics)


def model_history(
    source: Source,
    suite: str,
    model: str,
    *,
    filters: CellFilter = EVERYTHING,
    branch: str | None = None,
    metrics: Sequence[str] = HISTORY_METRICS,
) -> pd.DataFrame:
    """All cells of a model over all runs, oldest run first: the columns of `cell_history`, and what tells cells apart.

    That is: cell_id, phase, dtype, device, batch_size, config, config_id.
    """
    which = (CellRow.cell_id, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    columns = (*which, ConfigRow.name.label("config"), ConfigRow.config_id)
    conditions = [Model.suite == suite, Model.name == model, *filters.conditions()]
    return _history(source, conditions, columns, branch, metrics)


def suite_history(source: Source, *, filters: CellFilter = EVERYTHING, branch: str | None = None) -> pd.DataFrame:
    """Every group's figures over all runs, oldest run first, from the summary rows alone (models cannot be filtered).

    Columns: those that name the run (see `cell_history`), suite, phase, dtype, device, config, config_id, the counts
    planned, measured, missing, passed, failed, not_applicable, pass_rate (0 to 1), the geomeans speedup,
    device_speedup, compiled_ms, compiled_kernel_ms and compression, the mean compile_cold_s, and an `n_` column of each.

    Raises:
        ValueError: the filter names models.
    """
    if filters.models:
        raise ValueError("a suite's history is kept for all its models together")
    query = (
        select(*_RUN, Summary, ConfigRow.name.label("config_name"), ConfigRow.config_id)
        .join(Run, Summary.run == Run.id)
        .join(Commit, Run.commit == Commit.id)
        .join(Testbed, Run.testbed == Testbed.id)
        .join(ConfigRow, Summary.config == ConfigRow.id)
        .where(*_summary_conditions(filters), *_on(branch))
        .order_by(Run.started_at, Run.run_id, Summary.suite, ConfigRow.name)
    )
    return _averages(moments(frame(source, query), "started_at"))


def _summary_conditions(filters: CellFilter) -> list[ColumnElement[bool]]:
    axes: list[tuple[Any, tuple[str, ...]]] = [
        (Summary.suite, filters.suites),
        (Summary.phase, filters.phases),
        (Summary.dtype, filters.dtypes),
        (Summary.device, filters.devices),
    ]
    found = [column.in_(wanted) for column, wanted in axes if wanted]
    return found + CellFilter(configs=filters.configs).conditions()


def _averages(rows: pd.DataFrame) -> pd.DataFrame:
    """Sums into averages. A group without values gets NaN, never 0."""
    found = rows.drop(columns=["run", "config"]).rename(columns={"config_name": "config"})
    for name in _GEOMEANS:
        found[name] = np.exp(found.pop(f"ln_{name}") / found[f"n_{name}"].where(found[f"n_{name}"] > 0))
    sums, count = found.pop("sum_compile_cold_s"), found["n_compile_cold_s"]
    found["compile_cold_s"] = sums / count.where(count > 0)
    found["missing"] = found["planned"] - found["measured"]
    asked = found["planned"] - found["not_applicable"]
    found["pass_rate"] = found["passed"] / asked.where(asked > 0)
    return found


def _history(
    source: Source,
    conditions: Sequence[ColumnElement[bool]],
    columns: Sequence[Any],
    branch: str | None,
    metrics: Sequence[str],
) -> pd.DataFrame:
    """Measured rows, and a row without status for every run that planned a cell and has no measurement of it."""
    values = [measurements.c[METRICS[name].name] for name in metrics]
    row = measurements.c
    measured = _joined(
        select(*_RUN, *columns, row.replicate, row.status, Program.program_id, *values), measurements
    ).outerjoin(Program, Program.id == row.program)
    absent = ~exists().where(row.run == Planned.run, row.cell == Planned.cell)
    missing = _joined(select(*_RUN, *columns), Base.metadata.tables["planned"]).where(absent)
    names = [column.key for column in columns]
    where = (*conditions, *_on(branch))
    with connected(source) as conn:
        found = frame(conn, measured.where(*where))
        gaps = frame(conn, missing.where(*where))
    found = found.astype(dict.fromkeys(metrics, float))
    both = pd.concat([found, gaps.reindex(columns=found.columns)]) if len(gaps) else found
    both = both.sort_values(["started_at", "run_id", *names, "replicate"], ignore_index=True)
    return moments(both.astype({"replicate": "Int64"}), "started_at")


def _joined(query: Query, rows: Table) -> Query:
    """Cells with their names, joined to `rows` (measurements or plans) and the runs that those belong to."""
    return (
        query.select_from(CellRow)
        .join(Model, CellRow.model == Model.id)
        .join(ConfigRow, CellRow.config == ConfigRow.id)
        .join(rows, rows.c.cell == CellRow.id)
        .join(Run, Run.id == rows.c.run)
        .join(Commit, Run.commit == Commit.id)
        .join(Testbed, Run.testbed == Testbed.id)
    )


def _on(branch: str | None) -> list[ColumnElement[bool]]:
    return [] if branch is None else [Run.branch == branch]
