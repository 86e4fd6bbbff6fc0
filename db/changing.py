"""One change of the data: a transaction that takes its turn, and the revision that grows with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import DBAPIError

from db.errors import explain
from db.schema import Meta


@dataclass(slots=True)
class Change:
    """A change under way on `conn`; whoever makes one sets `made`, and the revision grows with the commit."""

    conn: Connection
    made: bool = False


@contextmanager
def changing(target: Engine | Connection) -> Iterator[Change]:
    """A transaction on an engine, or a savepoint on a connection that has one already. All of it counts, or nothing.

    Raises:
        StoreError: what the driver raised, in one line.
    """
    try:
        with _transaction(target) as conn:
            # The row that every ingest takes first, so that two writers never weave where the database would let them.
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
