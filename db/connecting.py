"""A query takes an engine or a connection; here the one becomes the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection, Engine, Select
from sqlalchemy.exc import DBAPIError

from db.errors import StoreError, explain, one_line

if TYPE_CHECKING:
    import pandas as pd

Source = Engine | Connection

#: Execution option of a statement whose rows a server may send in binary form.
BINARY = "binary_rows"

#: A select of whatever columns.
Query: TypeAlias = "Select[*tuple[Any, ...]]"


@contextmanager
def connected(source: Source) -> Iterator[Connection]:
    """A connection on `source`, closed afterwards if it was opened here. Driver errors come out as `StoreError`.

    One that was opened here has the execution option `opened_here`: what it sees is committed.
    """
    try:
        if isinstance(source, Connection):
            yield source
        else:
            with source.connect() as conn:
                yield conn.execution_options(opened_here=True)
    except DBAPIError as error:
        raise explain(error) from error
    except UnicodeEncodeError as error:
        raise StoreError(f"{one_line(repr(error.object))} is in no database: it is no text ({error.reason})") from error


def frame(source: Source, query: Query) -> pd.DataFrame:
    """The rows of a select as a data frame."""
    import pandas as pd

    with connected(source) as conn:
        result = conn.execute(query)
        # Plain tuples: a frame made of SQLAlchemy's row objects takes three times as long.
        return pd.DataFrame.from_records([tuple(row) for row in result], columns=list(result.keys()))


def moments(data: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The frame with its columns of seconds since 1970 turned into moments in UTC."""
    import pandas as pd

    return data.assign(**{name: pd.to_datetime(data[name].astype(float), unit="s", utc=True) for name in columns})
