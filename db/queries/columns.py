"""Rows of the driver as columns of numbers and texts: what a data frame is made of quickest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Connection, TextClause
from sqlalchemy.exc import DBAPIError

from db.connecting import BINARY, Query

Values = NDArray[np.float64]
#: As the driver gives the values, None among them.
Column = NDArray[np.object_]
Rows = list[tuple[Any, ...]]


def fetched(conn: Connection, query: Query | TextClause, values: Mapping[str, Any] | None = None) -> Rows:
    """The rows of a select as the driver's own tuples: row objects cost as much again as the query.

    For columns whose values both drivers give as they are: numbers and texts, no JSON and no compressed text. Raises
    `DBAPIError` like any query. `values` are those of its bound parameters.
    """
    cursor: Any = conn.execute(query, values, execution_options={BINARY: True}).cursor
    try:
        return list(cursor.fetchall())
    except conn.dialect.loaded_dbapi.Error as error:
        # As if SQLAlchemy had fetched them: a page that cannot be read shows only here.
        raise DBAPIError(None, None, error) from error


def turned(rows: Rows, width: int) -> list[Column]:
    """The columns of rows, `width` of them also where there is no row; of a thousand rows quicker than zip."""
    return list(np.array(rows, dtype=object).T) if rows else [np.empty(0, dtype=object)] * width


def floats(values: Sequence[float | None] | Column | Values) -> Values:
    """A column of numbers; NaN where there is none."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64, copy=False)
    return np.asarray(values, dtype=object).astype(np.float64)


def whole(values: Sequence[int] | Column | NDArray[np.int64]) -> NDArray[np.int64]:
    """A column of whole numbers, all of them there."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.int64, copy=False)
    return np.asarray(values, dtype=object).astype(np.int64)


def texts(values: Sequence[str | None]) -> pd.api.extensions.ExtensionArray:
    """A column of texts; NaN where there is none."""
    return pd.array(np.array(values, dtype=object), dtype="str")


def coded(values: Sequence[str | None] | Column) -> pd.api.extensions.ExtensionArray:
    """As `texts`, quicker where many rows share a few texts."""
    return picked(*numbered(values))


def numbered(values: Sequence[str | None] | Column) -> tuple[list[str], NDArray[np.int64]]:
    """The texts of a column, each once, and for every row the place of its own among them; -1 where there is none."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    names = [value for value in dict.fromkeys(listed) if value is not None]
    codes: dict[str | None, int] = {None: -1, **{name: place for place, name in enumerate(names)}}
    return names, np.array(list(map(codes.__getitem__, listed)), dtype=np.int64)


def picked(names: Sequence[str], places: NDArray[np.int64]) -> pd.api.extensions.ExtensionArray:
    """Of these texts those at the places; NaN for -1."""
    return texts(names).take(places, allow_fill=True)


def moments_of(seconds: Values) -> pd.api.extensions.ExtensionArray:
    """Moments in UTC of seconds since 1970; NaT for NaN."""
    return pd.to_datetime(seconds, unit="s", utc=True).array
