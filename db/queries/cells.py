"""Cells: the filters that choose them, their names, and the names that the store has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import pandas as pd
from sqlalchemy import ColumnElement, Connection, func, or_, select

from collector.vocabulary import batch_word
from db.connecting import Query, Source, connected, frame
from db.schema import CellRow, ConfigRow, Meta, Model, Run, results, summaries
from db.store_errors import FilterError, nearest, one_line
from db.stored_values import clean

#: The columns that name a cell but for its config, by field of `CellFilter`.
_OF_CELL = {
    **{"suites": Model.suite, "models": Model.name},
    **{"phases": CellRow.phase, "dtypes": CellRow.dtype, "devices": CellRow.device},
}


@dataclass(frozen=True, slots=True)
class CellFilter:
    """A choice of cells. An empty tuple lets everything through; `configs` takes names and `config_id`s alike."""

    suites: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:  # as names were cleaned when they were stored
            object.__setattr__(self, name, tuple(clean(wanted) for wanted in getattr(self, name)))

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return conditions for the WHERE of a select that joins cells, models and configs."""
        return [*self._among(_OF_CELL), *self._of_config(ConfigRow.name, ConfigRow.config_id)]

    def of_results(self) -> list[ColumnElement[bool]]:
        """Return conditions for the WHERE of a select from the view `results`."""
        columns = {name: results.c[name.removesuffix("s")] for name in _OF_CELL}
        return [*self._among(columns), *self._of_config(results.c.config, results.c.config_id)]

    def of_summaries(self) -> list[ColumnElement[bool]]:
        """Return conditions for the WHERE of a select that joins summaries and configs; there is none on models."""
        columns = {name: summaries.c[name.removesuffix("s")] for name in _OF_CELL if name != "models"}
        return [*self._among(columns), *self._of_config(ConfigRow.name, ConfigRow.config_id)]

    def matches(self, cell: CellName) -> bool:
        """Return whether the filter lets a cell through."""
        asked = ((getattr(self, name), getattr(cell, name.removesuffix("s"))) for name in _OF_CELL)
        of_config = not self.configs or cell.config in self.configs or cell.config_id in self.configs
        return of_config and all(not names or value in names for names, value in asked)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    def _among(self, columns: Mapping[str, Any]) -> list[ColumnElement[bool]]:
        return [column.in_(getattr(self, name)) for name, column in columns.items() if getattr(self, name)]

    def _of_config(self, *columns: Any) -> list[ColumnElement[bool]]:
        return [or_(*(column.in_(self.configs) for column in columns))] if self.configs else []


EVERYTHING = CellFilter()


def check_filter(source: Source, wanted: CellFilter) -> None:
    """Raise `FilterError`, one line with the nearest names, if the filter asks for a name that no cell has."""
    with connected(source) as conn:
        for _, word, names, known, also in _asked(conn, wanted):
            for name in names:
                if name not in known and name not in also:
                    raise _unknown(word, name, known)


def expand_patterns(source: Source, wanted: CellFilter) -> CellFilter:
    """Return the filter with every pattern, such as `Bert*`, replaced by the names in the database that it matches.

    A model may be written as `SUITE/MODEL`. A text that is itself a name stays that name, whatever characters it has. Raises
    `FilterError`, one line with the nearest names, for a text that is no name and matches none.
    """
    expanded: dict[str, tuple[str, ...]] = {}
    with connected(source) as conn:
        wanted = _split_suites(conn, wanted)
        for field, word, names, known, also in _asked(conn, wanted):
            matches: dict[str, None] = {}
            for name in names:
                own = [name] if name in known or name in also else sorted(k for k in known if fnmatchcase(k, name))
                if not own:
                    raise _unknown(word, name, known)
                matches |= dict.fromkeys(own)
            expanded[field] = tuple(matches)
    return replace(wanted, **expanded)


def _split_suites(conn: Connection, wanted: CellFilter) -> CellFilter:
    """Split the models into suites and models, if all of them are written as `SUITE/MODEL`, as tables print them."""
    suites = set(conn.execute(select(Model.suite).distinct()).scalars())
    pairs = [name.partition("/") for name in wanted.models]
    if not pairs or not all(suite in suites for suite, _, _ in pairs):
        return wanted
    named = tuple(dict.fromkeys(suite for suite, _, _ in pairs))
    return replace(wanted, models=tuple(model for _, _, model in pairs), suites=wanted.suites or named)


def _asked(conn: Connection, wanted: CellFilter) -> Iterator[tuple[str, str, tuple[str, ...], set[str], set[str]]]:
    """Yield, for each field that asks for anything, its name, its word, the names it asks for, the known names and known ids."""
    for field, column in _OF_CELL.items():
        if names := getattr(wanted, field):
            yield field, field.removesuffix("s"), names, set(conn.execute(select(column).distinct()).scalars()), set()
    if wanted.configs:
        rows = conn.execute(select(ConfigRow.name, ConfigRow.config_id)).all()
        yield "configs", "config", wanted.configs, {row.name for row in rows}, {row.config_id for row in rows}


def _unknown(word: str, name: str, known: Iterable[str]) -> FilterError:
    return FilterError(f"the database has no {word} {one_line(name)!r}{nearest(name, known)}")


#: The columns that name a cell.
CELL_COLUMNS = ("cell_id", "suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")

#: The result of `cell_names`.
CellNames: TypeAlias = pd.DataFrame


@dataclass(frozen=True, slots=True)
class CellName:
    """The name of a cell: the values of `CELL_COLUMNS`."""

    cell_id: str
    suite: str
    model: str
    phase: str
    dtype: str
    device: str
    batch_size: int
    config: str
    config_id: str

    def __str__(self) -> str:
        """Write the cell as `collector.vocabulary.Cell` writes itself."""
        batch = batch_word(self.batch_size)
        return f"{self.suite}/{self.model} {self.phase} {self.dtype} {self.device} {batch} {self.config}"

    @property
    def axes(self) -> tuple[str, str, str, str, str, int]:
        """Return the cell without its config."""
        return self.suite, self.model, self.phase, self.dtype, self.device, self.batch_size

    @property
    def place(self) -> tuple[str | int, ...]:
        """Return the key by which cells are sorted."""
        return *self.axes, self.config, self.config_id


def names_query() -> Query:
    """Return a select of `CELL_COLUMNS` of all cells; its FROM has cells, models and configs."""
    of_cell = (CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    return (
        select(CellRow.cell_id, Model.suite, Model.name.label("model"), *of_cell)
        .add_columns(ConfigRow.name.label("config"), ConfigRow.config_id)
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
    )


def cell_names(source: Source, filters: CellFilter = EVERYTHING) -> CellNames:
    """Return `CELL_COLUMNS` and `cell`, the name that people use, of the stored cells in the order of their names.

    The index has the database's numbers of the cells.
    """
    query = names_query().add_columns(CellRow.id.label("key")).where(*filters.conditions())
    order = (query.selected_columns[name] for name in CELL_COLUMNS[1:])
    names = frame(source, query.order_by(*order)).set_index("key")
    return names.assign(cell=spelled(names))


def spelled(names: pd.DataFrame) -> list[str]:
    """Return the names that people use for some cells (rows of `CELL_COLUMNS`), as `collector.vocabulary.Cell` writes itself."""
    columns = (names[name] for name in ("suite", "model", "phase", "dtype", "device", "batch_size", "config"))
    return [
        f"{suite}/{model} {phase} {dtype} {device} {batch_word(batch_size)} {config}"
        for suite, model, phase, dtype, device, batch_size, config in zip(*columns, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A config as it was requested; `collector.vocabulary.Config.from_json` reads `request`."""

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
    """All names of the stored cells by kind, sorted."""

    suites: tuple[str, ...]
    models: tuple[ModelInfo, ...]
    phases: tuple[str, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]


def revision(source: Source) -> int:
    """Return a number that grows whenever the data changes: the first argument of every cached function."""
    with connected(source) as conn:
        return int(conn.execute(select(Meta.value).where(Meta.key == "revision")).scalar() or 0)


def branches(source: Source) -> list[str]:
    """Return the branches that have runs, the one that ran last first."""
    query = select(Run.branch).group_by(Run.branch).order_by(func.max(Run.started_at).desc())
    with connected(source) as conn:
        return list(conn.execute(query).scalars())


def runs_with(source: Source, filters: CellFilter) -> frozenset[str]:
    """Return the ids of the runs that planned or measured a cell under a filter, whose models do not count (`of_summaries`)."""
    query = select(Run.run_id).join(summaries, summaries.c.run == Run.id).distinct()
    query = query.join(ConfigRow, ConfigRow.id == summaries.c.config).where(*filters.of_summaries())
    with connected(source) as conn:
        return frozenset(conn.execute(query).scalars())


def axes(source: Source) -> Axes:
    """Return every suite, model, phase, dtype, device and config of the stored cells."""
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
