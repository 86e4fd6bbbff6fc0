"""What is in the store: branches, commits, and the names that cells are made of.

Further questions, importable from here too: runs and nights (`db.runs`), one measurement (`db.queries.details`), histories
(`db.queries.history`), the rows of a side (`db.queries.side_rows`), what a person's text stands for
(`db.queries.sides`). All take an engine or
a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from db.connecting import Source, connected
from db.errors import FilterError, SideError, StoreError
from db.queries.details import (
    CellInfo,
    MeasurementInfo,
    cell,
    environment,
    evidence,
    measurement,
    program,
    samples,
)
from db.queries.filters import EVERYTHING, CellFilter, check_filter
from db.queries.history import model_history, suite_history
from db.queries.moments import from_epoch
from db.queries.side_rows import side_environments, side_rows
from db.queries.sides import Side, resolve_side
from db.runs import NightInfo, RunInfo, list_nights, list_runs
from db.schema import CellRow, ConfigRow, Meta, Model, Run

__all__ = [
    "EVERYTHING",
    "Axes",
    "BranchInfo",
    "CellFilter",
    "CellInfo",
    "ConfigInfo",
    "FilterError",
    "MeasurementInfo",
    "ModelInfo",
    "NightInfo",
    "RunInfo",
    "Side",
    "SideError",
    "StoreError",
    "axes",
    "branches",
    "cell",
    "check_filter",
    "environment",
    "evidence",
    "list_nights",
    "list_runs",
    "measurement",
    "model_history",
    "program",
    "resolve_side",
    "revision",
    "samples",
    "side_environments",
    "side_rows",
    "suite_history",
]


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch with its number of runs and the start of the newest one."""

    branch: str
    runs: int
    newest: datetime


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A way of compiling, as it was asked for; `collector.vocabulary.Config.from_json` reads `request`."""

    config_id: str
    name: str
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model of a suite."""

    suite: str
    name: str


@dataclass(frozen=True, slots=True)
class Axes:
    """Every name that some cell has, sorted."""

    suites: tuple[str, ...]
    models: tuple[ModelInfo, ...]
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]


def revision(source: Source) -> int:
    """A number that grows whenever the data changes: the first argument of whatever is cached."""
    with connected(source) as conn:
        return int(conn.execute(select(Meta.value).where(Meta.key == "revision")).scalar() or 0)


def branches(source: Source) -> list[BranchInfo]:
    """Branches that have runs, the one that ran last first."""
    newest = func.max(Run.started_at).label("newest")
    query = select(Run.branch, func.count().label("runs"), newest).group_by(Run.branch).order_by(newest.desc())
    with connected(source) as conn:
        return [BranchInfo(row.branch, row.runs, from_epoch(row.newest)) for row in conn.execute(query)]


def axes(source: Source) -> Axes:
    """Every suite, model, phase, dtype, device and config of the stored cells."""
    with connected(source) as conn:
        models = conn.execute(select(Model.suite, Model.name).order_by(Model.suite, Model.name)).all()
        kinds = conn.execute(select(CellRow.phase, CellRow.dtype, CellRow.device).distinct()).all()
        configs = conn.execute(
            select(ConfigRow.config_id, ConfigRow.name, ConfigRow.request).order_by(ConfigRow.name, ConfigRow.config_id)
        ).all()
    return Axes(
        suites=tuple(sorted({row.suite for row in models})),
        models=tuple(ModelInfo(row.suite, row.name) for row in models),
        phases=tuple(sorted({row.phase for row in kinds})),
        dtypes=tuple(sorted({row.dtype for row in kinds})),
        devices=tuple(sorted({row.device for row in kinds})),
        configs=tuple(ConfigInfo(row.config_id, row.name, row.request) for row in configs),
    )
