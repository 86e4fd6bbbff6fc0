"""The names of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd
from sqlalchemy import select

from collector.vocabulary import batch_word
from db.connecting import Query, Source, frame
from db.queries.filters import EVERYTHING, CellFilter
from db.schema import CellRow, ConfigRow, Model

#: What names a cell.
CELL_COLUMNS = ("cell_id", "suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")

#: What `cell_names` gives.
CellNames: TypeAlias = pd.DataFrame


@dataclass(frozen=True, slots=True)
class CellName:
    """What names a cell: the values of `CELL_COLUMNS`."""

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
        """Return what cells are sorted by."""
        return *self.axes, self.config, self.config_id


def names_query() -> Query:
    """A select of `CELL_COLUMNS` of all cells; its FROM has cells, models and configs."""
    of_cell = (CellRow.phase, CellRow.dtype, CellRow.device, CellRow.batch_size)
    return (
        select(CellRow.cell_id, Model.suite, Model.name.label("model"), *of_cell)
        .add_columns(ConfigRow.name.label("config"), ConfigRow.config_id)
        .join(Model, Model.id == CellRow.model)
        .join(ConfigRow, ConfigRow.id == CellRow.config)
    )


def cell_names(source: Source, filters: CellFilter = EVERYTHING) -> CellNames:
    """`CELL_COLUMNS` and `cell`, the name that people use, of the stored cells in the order of their names.

    The index has the database's numbers of the cells.
    """
    query = names_query().add_columns(CellRow.id.label("key")).where(*filters.conditions())
    order = (query.selected_columns[name] for name in CELL_COLUMNS[1:])
    names = frame(source, query.order_by(*order)).set_index("key")
    return names.assign(cell=spelled(names))


def spelled(names: pd.DataFrame) -> list[str]:
    """What people call these cells (rows of `CELL_COLUMNS`), as `collector.vocabulary.Cell` writes itself."""
    columns = (names[name] for name in ("suite", "model", "phase", "dtype", "device", "batch_size", "config"))
    return [
        f"{suite}/{model} {phase} {dtype} {device} {batch_word(batch_size)} {config}"
        for suite, model, phase, dtype, device, batch_size, config in zip(*columns, strict=True)
    ]
