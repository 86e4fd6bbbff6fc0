"""A PostgreSQL server for the faults, where one can be started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def server(is_wanted: bool = True) -> Iterator[tuple[Callable[[], str] | None, str]]:
    """What makes a new, migrated database and returns its URL; or None, and why there is none."""
    from tests import postgres

    if not is_wanted:
        yield None, "nobody asked for it"
        return
    try:
        running = postgres.start()
    except postgres.NoServerError as error:
        yield None, str(error)
        return
    try:
        yield running.migrated, ""
    finally:
        running.stop()
