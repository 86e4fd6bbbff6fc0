"""Connections for reading, and transactions for writing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from sqlalchemy import ColumnElement, Connection, Double, Engine, Select, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import Text, TypeEngine

from db.schema import Meta
from db.store_errors import StoreError, explain, one_line
from db.stored_values import MaskedText

if TYPE_CHECKING:
    import pandas as pd

Source = Engine | Connection

#: A select of any columns.
Query: TypeAlias = "Select[*tuple[Any, ...]]"

Values: TypeAlias = "np.ndarray[Any, Any]"

_T = TypeVar("_T")


def chunks(values: Iterable[_T], size: int = 400) -> Iterator[list[_T]]:
    """Yield the values in lists of at most `size`: every database takes 400 in one IN list."""
    left = iter(values)
    while chunk := list(islice(left, size)):
        yield chunk


@contextmanager
def connected(source: Source) -> Iterator[Connection]:
    """Yield a connection for an engine or a connection, and close it if it was opened here.

    Raises `StoreError`, in one line, for an error of the driver and for text that cannot be encoded.
    """
    try:
        if isinstance(source, Connection):
            yield source
        else:
            with source.connect() as conn:
                yield conn
    except DBAPIError as error:
        raise explain(error) from error
    except UnicodeEncodeError as error:
        raise StoreError(f"{one_line(repr(error.object))} is in no database: it is no text ({error.reason})") from error


def by_key(source: Source, key: Any, value: Any, wanted: Iterable[Any]) -> dict[Any, Any]:
    """Return column `value` by column `key` for the `wanted` keys that are stored; NULL values are left out."""
    known: dict[Any, Any] = {}
    with connected(source) as conn:
        for some in chunks(sorted({name for name in wanted if name is not None})):
            rows = conn.execute(select(key, value).where(key.in_(some), value.is_not(None)))
            known |= {row[0]: row[1] for row in rows}
    return known


#: Rows that become arrays together: few enough that their values are still in the processor's cache.
_AT_ONCE = 1000


def frame(source: Source, query: Query) -> pd.DataFrame:
    """Return the rows of a select as a data frame, with the types that `framed` describes."""
    with connected(source) as conn:
        return _joined(conn.execute(query).partitions(_AT_ONCE), query.selected_columns)


def framed(rows: Sequence[Sequence[Any]], columns: Iterable[ColumnElement[Any]]) -> pd.DataFrame:
    """Return rows with these columns as a data frame.

    Numbers are float64 with NaN for NULL, texts are `str` with NaN for NULL, whole numbers are int64, or Int64 where one is
    NULL.
    """
    return _joined([rows] if rows else [], columns)


def _joined(parts: Iterable[Sequence[Sequence[Any]]], columns: Iterable[ColumnElement[Any]]) -> pd.DataFrame:
    import pandas as pd

    types = {column.name: column.type for column in columns}
    arrays: list[list[Values]] = [[np.empty(0, _stored(kind))] for kind in types.values()]
    for rows in parts:
        for of_column, values, kind in zip(arrays, zip(*rows, strict=True), types.values(), strict=True):
            try:
                of_column.append(np.array(values, _stored(kind)))
            except TypeError:  # a whole number is NULL
                of_column.append(np.array(values, object))
    joined = map(np.concatenate, arrays)
    typed = {name: _typed(values, kind) for (name, kind), values in zip(types.items(), joined, strict=True)}
    return pd.DataFrame(typed, copy=False)


def _stored(kind: TypeEngine[Any]) -> type:
    if isinstance(kind, Double):
        return np.float64
    return object if isinstance(kind, Text | MaskedText) else np.int64


def _typed(values: Values, kind: TypeEngine[Any]) -> Any:
    import pandas as pd

    if values.dtype != object:
        return values
    return pd.array(values, dtype="str" if isinstance(kind, Text | MaskedText) else "Int64")


@dataclass(slots=True)
class Change:
    """A transaction on `conn` that may change data. Code that changes data sets `made`; the commit then raises the revision."""

    conn: Connection
    made: bool = False


@contextmanager
def changing(target: Engine | Connection) -> Iterator[Change]:
    """Yield a `Change` in a new transaction, or in a savepoint if `target` is a connection in a transaction. Writers take turns.

    Raises `StoreError`, in one line, for an error of the driver; nothing is then half-written.
    """
    try:
        with _transaction(target) as conn:
            # Every writer locks this row first, so there is one writer at a time.
            number = conn.execute(select(Meta.value).where(Meta.key == "revision").with_for_update()).scalar_one()
            change = Change(conn)
            yield change
            if change.made:
                conn.execute(update(Meta).where(Meta.key == "revision").values(value=str(int(number) + 1)))
    except DBAPIError as error:
        raise explain(error) from error


@contextmanager
def _transaction(target: Engine | Connection) -> Iterator[Connection]:
    if isinstance(target, Engine):
        with target.begin() as conn:
            yield conn
        return
    with target.begin_nested() if target.in_transaction() else target.begin():
        yield target
