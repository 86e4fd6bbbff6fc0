"""Which cells a question is about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from db.connecting import Source, connected
from db.errors import FilterError, nearest, one_line
from db.schema import CellRow, ConfigRow, Model
from db.texts import clean


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
        found: list[ColumnElement[bool]] = [column.in_(wanted) for column, wanted in self._plain() if wanted]
        if self.configs:
            found.append(or_(ConfigRow.name.in_(self.configs), ConfigRow.config_id.in_(self.configs)))
        return found

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    def plain_names(self) -> list[tuple[str, tuple[str, ...]]]:
        """What is asked for but configs: the column of a cell's names, and the values that it may have."""
        names = ("suite", "model", "phase", "dtype", "device")
        return [(name, wanted) for name, (_, wanted) in zip(names, self._plain(), strict=True) if wanted]

    def _plain(self) -> list[tuple[InstrumentedAttribute[str], tuple[str, ...]]]:
        return [
            (Model.suite, self.suites),
            (Model.name, self.models),
            (CellRow.phase, self.phases),
            (CellRow.dtype, self.dtypes),
            (CellRow.device, self.devices),
        ]


EVERYTHING = CellFilter()


def check_filter(source: Source, wanted: CellFilter) -> None:
    """Raises `FilterError`, one line with the nearest names, if the filter asks for a name that no cell has."""
    words = ("suite", "model", "phase", "dtype", "device")
    with connected(source) as conn:
        for word, (column, names) in zip(words, wanted._plain(), strict=True):
            if names:
                _check(word, names, conn.execute(select(column).distinct()).scalars())
        if wanted.configs:
            rows = conn.execute(select(ConfigRow.name, ConfigRow.config_id)).all()
            _check("config", wanted.configs, [row.name for row in rows], {row.config_id for row in rows})


def _check(word: str, wanted: tuple[str, ...], known: Iterable[str], also: Iterable[str] = ()) -> None:
    names = set(known)
    for name in wanted:
        if name not in names and name not in also:
            raise FilterError(f"the database has no {word} {one_line(name)!r}{nearest(name, names)}")
