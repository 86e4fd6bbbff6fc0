"""The version of a database's schema, and the way to the newest one. Alembic, set up in code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Engine, insert, inspect, text
from sqlalchemy.schema import CreateColumn

from db.schema import Base, Meta, create_results, measurements, summaries

# Alembic takes longer to import than most queries take. Only a change of the schema needs it.
if TYPE_CHECKING:
    from alembic.config import Config

#: The schemas from the baseline on, oldest first. This program reads and writes the last one.
VERSIONS = ("0007", "0008")

_SCRIPTS = Path(__file__).parents[1] / "migrations"


def current(source: Engine | Connection) -> str | None:
    """The version of a database; None where it has none, because it is empty or not ours."""
    if isinstance(source, Engine):
        with source.connect() as conn:
            return current(conn)
    if not inspect(source).has_table("alembic_version"):
        return None
    return source.execute(text("SELECT version_num FROM alembic_version")).scalar()


def missing_columns(conn: Connection) -> list[Column[Any]]:
    """The columns of metrics that are newer than the database."""
    missing: list[Column[Any]] = []
    for table in (measurements, summaries):
        known = set(conn.execute(text(f"SELECT * FROM {table.name} LIMIT 0")).keys())  # noqa: S608 -- our own name
        missing += [column for column in table.columns if column.name not in known]
    return missing


def upgrade(engine: Engine) -> None:
    """Creates the schema, or brings it up to date, in one transaction. Nothing happens where it is up to date."""
    from alembic import command

    with engine.begin() as conn:
        if conn.dialect.name == "postgresql":  # wait for anyone who does the same; in a file, a writer is alone
            conn.execute(text("SELECT pg_advisory_xact_lock(hashtext('inductor-watch schema'))"))
        version = current(conn)
        if version is None:
            Base.metadata.create_all(conn)
            conn.exec_driver_sql(create_results(conn.dialect))
            conn.execute(insert(Meta), {"key": "revision", "value": "0"})
            command.stamp(_config(conn), "head")
        elif version != VERSIONS[-1]:
            command.upgrade(_config(conn), "head")
        if missing := missing_columns(conn):
            _add_columns(conn, missing)


def _add_columns(conn: Connection, columns: list[Column[Any]]) -> None:
    """Adds the columns of new metrics. Rows that are there already have NULL in them, or a count of 0."""
    conn.exec_driver_sql("DROP VIEW IF EXISTS results")
    for column in columns:
        declared = CreateColumn(column).compile(dialect=conn.dialect)
        conn.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {declared}")
    conn.exec_driver_sql(create_results(conn.dialect))


def _config(conn: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    # A per cent sign in a path would be read as a variable.
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = conn
    return config
