"""What is in the store: branches, and the names that cells are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from db.connecting import Source, connected
from db.queries.filters import CellFilter
from db.schema import CellRow, ConfigRow, Meta, Model, Run, summaries


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


def branches(source: Source) -> list[str]:
    """Branches that have runs, the one that ran last first."""
    query = select(Run.branch).group_by(Run.branch).order_by(func.max(Run.started_at).desc())
    with connected(source) as conn:
        return list(conn.execute(query).scalars())


def runs_with(source: Source, filters: CellFilter) -> frozenset[str]:
    """The ids of the runs that planned a cell under a filter. It cannot ask for models (`CellFilter.of_summaries`)."""
    query = select(Run.run_id).join(summaries, summaries.c.run == Run.id).distinct()
    query = query.join(ConfigRow, ConfigRow.id == summaries.c.config).where(*filters.of_summaries())
    with connected(source) as conn:
        return frozenset(conn.execute(query).scalars())


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
        models=tuple(ModelInfo(*row) for row in models),
        phases=tuple(sorted({row.phase for row in kinds})),
        dtypes=tuple(sorted({row.dtype for row in kinds})),
        devices=tuple(sorted({row.device for row in kinds})),
        configs=tuple(ConfigInfo(*row) for row in configs),
    )
