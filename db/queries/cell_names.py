"""The names of all cells, read once: they are only ever added to, and every table of rows needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from db.queries.columns import Column, fetched, texts, whole
from db.queries.filters import CellFilter
from db.queries.remembered import Remembered, State, state_of
from db.schema import CellRow, ConfigRow, Model

#: What names a cell.
CELL_COLUMNS = ("cell_id", "suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")
#: The order in which cells are shown.
_ORDER = ("suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CellNames:
    """Every stored cell in the order of its name: entry i of each is of the cell at place i.

    `columns` holds `CELL_COLUMNS`, `keys` the database's numbers, `models` those of the models, `spelled` what people call
    the cells. `places` leads from a number to a place, -1 where no cell has the number. `apart_from_config` numbers what
    is left of a cell without its config, in order.
    """

    columns: dict[str, pd.api.extensions.ExtensionArray | NDArray[np.int64]]
    keys: NDArray[np.int64]
    places: Places
    spelled: pd.api.extensions.ExtensionArray
    apart_from_config: Places
    models: NDArray[np.int64]

    def of(self, places: Places) -> dict[str, pd.api.extensions.ExtensionArray | NDArray[np.int64]]:
        """`CELL_COLUMNS` of the cells at these places."""
        if np.array_equal(places, np.arange(len(self.keys))):
            return dict(self.columns)
        return {name: values.take(places) for name, values in self.columns.items()}

    def has(self, key: int) -> bool:
        """Whether the number is known, and so all lower ones."""
        return key < len(self.places)

    def at(self, keys: Sequence[int] | Column) -> Places:
        """The places of cells, by the database's numbers."""
        return self.places[whole(keys)]

    def chosen(self, filters: CellFilter) -> Mask:
        """Which cells a filter lets through, an entry a place."""
        found = np.ones(len(self.keys), dtype=bool)
        for name, wanted in filters.plain_names():
            found &= self._is_in(name, wanted)
        if filters.configs:
            found &= self._is_in("config", filters.configs) | self._is_in("config_id", filters.configs)
        return found

    def _is_in(self, name: str, wanted: tuple[str, ...]) -> Mask:
        if len(wanted) == 1:  # as a model's history asks, and several times as fast
            return np.asarray(self.columns[name] == wanted[0], dtype=bool)
        return np.asarray(pd.Series(self.columns[name]).isin(wanted), dtype=bool)


_KNOWN: Remembered[CellNames] = Remembered()


def cell_names(conn: Connection, state: State | None = None) -> CellNames:
    """The names of all cells as this connection sees them; read anew only where the database has changed.

    `state` is what `state_of` said of this connection, where it was asked already.
    """
    return _KNOWN.get(conn, state or state_of(conn), None, _read)


def _read(conn: Connection) -> CellNames:
    query = (
        select(
            CellRow.id,
            CellRow.cell_id,
            Model.suite,
            Model.name,
            CellRow.phase,
            CellRow.dtype,
            CellRow.device,
            CellRow.batch_size,
            ConfigRow.name,
            ConfigRow.config_id,
            CellRow.model,
        )
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
    )
    rows = fetched(conn, query)
    order = [1 + CELL_COLUMNS.index(name) for name in _ORDER]
    rows.sort(key=lambda row: [row[place] for place in order])
    columns = list(zip(*rows, strict=True)) or [()] * (2 + len(CELL_COLUMNS))
    named = dict(zip(CELL_COLUMNS, columns[1:-1], strict=True))
    keys = np.array(columns[0], dtype=np.int64)
    places = np.full(int(keys.max(initial=0)) + 1, -1, dtype=np.int64)
    places[keys] = np.arange(len(keys))
    return CellNames(
        columns={
            name: np.array(found, dtype=np.int64) if name == "batch_size" else texts(found)
            for name, found in named.items()
        },
        keys=keys,
        places=places,
        spelled=_spelled(named),
        apart_from_config=_numbered([row[2:8] for row in rows]),
        models=np.array(columns[-1], dtype=np.int64),
    )


def _numbered(sorted_rows: Sequence[object]) -> Places:
    """0 for the first and those equal to it, 1 for the next, ..."""
    steps = [int(before != after) for before, after in pairwise(sorted_rows)]
    return np.cumsum([0, *steps], dtype=np.int64)[: len(sorted_rows)]


def _spelled(named: dict[str, tuple[object, ...]]) -> pd.api.extensions.ExtensionArray:
    """As `collector.vocabulary.Cell` writes itself."""
    which = (named[name] for name in ("suite", "model", "phase", "dtype", "device", "batch_size", "config"))
    return texts(
        [
            f"{suite}/{model} {phase} {dtype} {device} bs{batch_size} {config}"
            for suite, model, phase, dtype, device, batch_size, config in zip(*which, strict=True)
        ]
    )
