"""What was read once and holds until the database changes, kept by engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, func, select

from db.schema import CellRow, Meta

T = TypeVar("T")
State = tuple[str, int]

_STATE = select(Meta.value, select(func.coalesce(func.max(CellRow.id), 0)).scalar_subquery()).where(
    Meta.key == "revision"
)


def state_of(conn: Connection) -> State:
    """What differs whenever this connection sees other data: the revision, and the highest number of a cell.

    The latter since a rolled-back ingest gives its numbers back, and one that is not committed has no revision yet.
    """
    row = conn.execute(_STATE).first()
    return ("", 0) if row is None else (str(row[0]), int(row[1]))


class Remembered(Generic[T]):
    """Values by engine and key, of its newest state only. Only what was committed gets here."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Engine, tuple[State, dict[Hashable, T]]] = WeakKeyDictionary()

    def get(self, conn: Connection, state: State, key: Hashable, read: Callable[[Connection], T]) -> T:
        """The value of that key in this state, read if it is not known."""
        known = self._known.get(conn.engine)
        if known is not None and known[0] == state and key in known[1]:
            return known[1][key]
        found = read(conn)
        # A caller's own connection may see what it has not committed: nobody else may be told of that.
        if conn.get_execution_options().get("opened_here"):
            values = dict(known[1]) if known is not None and known[0] == state else {}
            self._known[conn.engine] = state, {**values, key: found}
        return found
