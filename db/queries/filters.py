"""Which cells a question is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, or_, select

from db.connecting import Source, connected
from db.errors import FilterError, nearest, one_line
from db.schema import CellRow, ConfigRow, Model, results, summaries
from db.texts import clean

if TYPE_CHECKING:
    from db.queries.cell_names import CellName

#: The columns that name a cell but for its config, by field of `CellFilter`.
_OF_CELL = {
    **{"suites": Model.suite, "models": Model.name},
    **{"phases": CellRow.phase, "dtypes": CellRow.dtype, "devices": CellRow.device},
}


@dataclass(frozen=True, slots=True)
class CellFilter:
    """An empty tuple lets everything through. `configs` takes names and `config_id`s alike."""

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
        """For the WHERE of a select that joins cells, models and configs."""
        return [*self._among(_OF_CELL), *self._of_config(ConfigRow.name, ConfigRow.config_id)]

    def of_results(self) -> list[ColumnElement[bool]]:
        """For the WHERE of a select from the view `results`."""
        columns = {name: results.c[name.removesuffix("s")] for name in _OF_CELL}
        return [*self._among(columns), *self._of_config(results.c.config, results.c.config_id)]

    def of_summaries(self) -> list[ColumnElement[bool]]:
        """For the WHERE of a select that joins summaries and configs; models cannot be asked for."""
        columns = {name: summaries.c[name.removesuffix("s")] for name in _OF_CELL if name != "models"}
        return [*self._among(columns), *self._of_config(ConfigRow.name, ConfigRow.config_id)]

    def matches(self, cell: CellName) -> bool:
        """Whether it lets a cell through."""
        asked = ((getattr(self, name), getattr(cell, name.removesuffix("s"))) for name in _OF_CELL)
        of_config = not self.configs or cell.config in self.configs or cell.config_id in self.configs
        return of_config and all(not names or value in names for names, value in asked)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    def _among(self, columns: Mapping[str, Any]) -> list[ColumnElement[bool]]:
        return [column.in_(getattr(self, name)) for name, column in columns.items() if getattr(self, name)]

    def _of_config(self, *columns: Any) -> list[ColumnElement[bool]]:
        return [or_(*(column.in_(self.configs) for column in columns))] if self.configs else []


EVERYTHING = CellFilter()


def check_filter(source: Source, wanted: CellFilter) -> None:
    """Raises `FilterError`, one line with the nearest names, if the filter asks for a name that no cell has."""
    with connected(source) as conn:
        for _, word, names, known, also in _asked(conn, wanted):
            for name in names:
                if name not in known and name not in also:
                    raise _unknown(word, name, known)


def expand_patterns(source: Source, wanted: CellFilter) -> CellFilter:
    """The filter with every pattern, such as `Bert*`, as the names in the database that it matches.

    What is a name itself stays that name, whatever characters it has. Raises `FilterError`, one line with the nearest
    names, for what is no name and matches none.
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
    """`SUITE/MODEL` among the models, as tables print it, becomes a suite and a model."""
    suites = set(conn.execute(select(Model.suite).distinct()).scalars())
    pairs = [name.partition("/") for name in wanted.models]
    if not pairs or not all(suite in suites for suite, _, _ in pairs):
        return wanted
    named = tuple(dict.fromkeys(suite for suite, _, _ in pairs))
    return replace(wanted, models=tuple(model for _, _, model in pairs), suites=wanted.suites or named)


def _asked(conn: Connection, wanted: CellFilter) -> Iterator[tuple[str, str, tuple[str, ...], set[str], set[str]]]:
    """Of each field that asks for anything: its name, its word, what it asks for, the known names, and other known ids."""
    for field, column in _OF_CELL.items():
        if names := getattr(wanted, field):
            yield field, field.removesuffix("s"), names, set(conn.execute(select(column).distinct()).scalars()), set()
    if wanted.configs:
        rows = conn.execute(select(ConfigRow.name, ConfigRow.config_id)).all()
        yield "configs", "config", wanted.configs, {row.name for row in rows}, {row.config_id for row in rows}


def _unknown(word: str, name: str, known: Iterable[str]) -> FilterError:
    return FilterError(f"the database has no {word} {one_line(name)!r}{nearest(name, known)}")
