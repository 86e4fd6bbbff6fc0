"""A temporary table with the whole line of a repository: the facts of an import, beside what is stored already.

It costs one quick pass to fill, and makes each question of an import (what is new, what moved, what is no longer on the
line, which commit an abbreviated sha means) one statement, however many commits there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sqlalchemy import Boolean, Column, Connection, Double, Index, Integer, MetaData, Table, Text

#: On a server the stored texts compare by their bytes (`db.maintenance.migrate`); an index of another collation is
#: of no use to them.
_Text = Text().with_variant(Text(collation="C"), "postgresql")

staged = Table(
    "staged_commits",
    MetaData(),
    Column("sha", _Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("chosen", Boolean, nullable=False),
    Column("author_date", Double),
    Column("committed_at", Double),
    Column("title", _Text),
    Column("pr_number", Integer),
    prefixes=["TEMPORARY"],
)
_COLUMNS = ", ".join(column.name for column in staged.columns)
_CHUNK = 10_000


@contextmanager
def staging(conn: Connection) -> Iterator[None]:
    """The empty table, gone afterwards; where something is raised the transaction takes it back."""
    staged.create(conn)
    yield
    staged.drop(conn)


def stage(conn: Connection, rows: Iterable[Sequence[Any]]) -> None:
    """Puts rows (values in the order of the table's columns) into the table, and indexes it."""
    if conn.dialect.name == "postgresql":
        _copy(conn, rows)
    else:
        left = iter(rows)
        marks = ", ".join("?" * len(staged.columns))
        while chunk := [tuple(row) for row in islice(left, _CHUNK)]:
            conn.exec_driver_sql(f"INSERT INTO staged_commits ({_COLUMNS}) VALUES ({marks})", chunk)  # noqa: S608
    # Afterwards: an index that is filled row by row takes three times as long.
    index = Index("ix_staged_commits", staged.c.sha)
    try:
        index.create(conn)
    finally:
        staged.indexes.discard(index)
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("ANALYZE staged_commits")  # it plans blindly for a table that is new


def _copy(conn: Connection, rows: Iterable[Sequence[Any]]) -> None:
    cursor: Any = conn.connection.cursor()  # psycopg's, which can do more than every driver's
    with cursor, cursor.copy(f"COPY staged_commits ({_COLUMNS}) FROM STDIN") as stream:
        for row in rows:
            stream.write_row(row)
