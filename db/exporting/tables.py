"""A side as a flat table: a row a cell, a column a metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import pandas as pd

from db.connecting import Source
from db.exporting.errors import ExportingError
from db.queries.side_rows import side_rows
from db.queries.sides import Side

#: What a spreadsheet takes for the beginning of a formula, itself or behind blanks and line ends that it drops.
_FORMULAS = ("=", "+", "-", "@")
_OF_RUN = ("night", "repo", "branch", "commit", "label")


def side_table(source: Source, sides: Sequence[Side]) -> pd.DataFrame:
    """The rows of some sides one after the other: `side`, what names the run, the cell, its status and every metric.

    A cell that was planned and never measured has a row without a status. `testbed` is in a few words; units are those
    of `collector.metrics`.
    """
    tables = [_of_side(source, side) for side in sides]
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


def _of_side(source: Source, side: Side) -> pd.DataFrame:
    rows = side_rows(source, side)
    runs = {run.run_id: run for run in side.runs}
    rows.insert(0, "side", side.text)
    for place, name in enumerate(_OF_RUN, start=1):
        values: list[Any] = [getattr(runs[run], name) if run in runs else None for run in rows["run_id"]]
        rows.insert(place, name, pd.Series(values, index=rows.index, dtype=object))
    return rows


def as_csv(table: pd.DataFrame) -> bytes:
    """UTF-8, a header line, LF; a text that a spreadsheet would take for a formula has an apostrophe in front."""
    # Every text in quotes: a lone carriage return would end a line to some readers.
    return (
        without_formulas(table)
        .to_csv(quoting=csv.QUOTE_NONNUMERIC, index=False, lineterminator="\n", date_format="%Y-%m-%dT%H:%M:%S.%f%z")
        .encode("utf-8", "replace")
    )


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before each text that a spreadsheet would take for a formula; numbers stay."""
    shown = table.copy()
    for name in shown.columns:
        if not pd.api.types.is_numeric_dtype(shown[name].dtype) and not hasattr(shown[name], "dt"):
            shown[name] = pd.Series([_harmless(value) for value in shown[name]], index=shown.index, dtype=object)
    return shown


def _harmless(value: Any) -> Any:
    is_formula = isinstance(value, str) and (value.lstrip().startswith(_FORMULAS) or value[:1] in ("\t", "\r"))
    return f"'{value}" if is_formula else value


def as_parquet(table: pd.DataFrame) -> bytes:
    """The same table as Parquet. Raises `ExportingError` where pyarrow is not installed."""
    buffer = io.BytesIO()
    try:
        table.to_parquet(buffer, index=False, engine="pyarrow")
    except ImportError as error:
        raise ExportingError("Parquet needs pyarrow: pip install pyarrow, or choose --format csv") from error
    return buffer.getvalue()
