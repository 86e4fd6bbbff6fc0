"""The version of a database's schema, and the upgrade to the newest one, which adds the tables and columns that are missing.

So a new table, or a column that may be NULL or has a default, needs a new version here and nothing else. For any other
change a database is built anew from its bundles, with one exception: old compile times are stripped of tuning here, too.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, Connection, Engine, and_, bindparam, delete, insert, inspect, select, text, update
from sqlalchemy.schema import CreateColumn

from collector.bundle import take_out_tuning
from db.nights import refresh
from db.schema import Base, Evidence, Meta, Run, SchemaVersion, create_results, measurements, summaries
from db.stored_values import compact

#: The schemas that can be brought up to date, oldest first. This program reads and writes the last one.
VERSIONS = ("0007", "0008", "0009", "0010")
#: The first schema whose compile times hold no tuning.
_WITHOUT_TUNING = "0010"


def is_older(version: str) -> bool:
    """Return whether a schema is from before `VERSIONS`: such a database is built anew from its bundles."""
    return len(version) == len(VERSIONS[0]) and version.isdecimal() and version < VERSIONS[0]


def current(source: Engine | Connection) -> str | None:
    """Return the schema version of a database; None for a database that is empty or not ours."""
    if isinstance(source, Engine):
        with source.connect() as conn:
            return current(conn)
    if not inspect(source).has_table(SchemaVersion.__tablename__):
        return None
    return source.execute(text(f"SELECT version_num FROM {SchemaVersion.__tablename__}")).scalar()  # noqa: S608


def missing_columns(conn: Connection) -> list[Column[Any]]:
    """Return the columns that are newer than the database, such as those of new metrics."""
    missing: list[Column[Any]] = []
    for table in (measurements, summaries, Base.metadata.tables[Run.__tablename__]):
        known = set(conn.execute(text(f"SELECT * FROM {table.name} LIMIT 0")).keys())  # noqa: S608 -- our own name
        missing += [column for column in table.columns if column.name not in known]
    return missing


def upgrade(engine: Engine) -> None:
    """Create the schema, or bring it up to date, in one transaction. Nothing happens where it is up to date."""
    with engine.begin() as conn:
        if conn.dialect.name == "postgresql":  # wait for another upgrade; in a file, a writer is alone
            conn.execute(text("SELECT pg_advisory_xact_lock(hashtext('inductor-watch schema'))"))
        version = current(conn)
        Base.metadata.create_all(conn)
        missing = missing_columns(conn)
        if version is None:
            conn.execute(insert(Meta), {"key": "revision", "value": "0"})
        if version is None or missing:
            _add_columns(conn, missing)
        if version is not None and version < _WITHOUT_TUNING:
            _take_out_tuning(conn)
        if version != VERSIONS[-1]:
            conn.execute(delete(SchemaVersion))
            conn.execute(insert(SchemaVersion), {"version_num": VERSIONS[-1]})


def _add_columns(conn: Connection, columns: list[Column[Any]]) -> None:
    """Add columns, and create the view anew. Existing rows get NULL in the new columns, or a count of 0."""
    conn.exec_driver_sql("DROP VIEW IF EXISTS results")
    for column in columns:
        declared = CreateColumn(column).compile(dialect=conn.dialect)
        conn.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {declared}")
    conn.exec_driver_sql(create_results(conn.dialect))


def _take_out_tuning(conn: Connection) -> None:
    """Take tuning out of stored compile times, as the reader of bundles does (`collector.bundle.take_out_tuning`), run by run."""
    row, names = measurements.c, ("compile_cold_s", "tuning_s", "compile_instructions")
    key = and_(Evidence.run == row.run, Evidence.cell == row.cell, Evidence.replicate == row.replicate)
    wanted = select(row.run, row.cell, row.replicate, *(row[name] for name in names), Evidence.details)
    wanted = wanted.join(Evidence, key).where(row.compile_cold_s.is_not(None), Evidence.details.is_not(None))
    at: dict[str, Any] = {name: bindparam(f"at_{name}") for name in ("run", "cell", "replicate")}
    for run in conn.execute(select(Run.id)).scalars().all():
        changed = []
        for found in conn.execute(wanted.where(row.run == run)).mappings():
            details = json.loads(found["details"])
            metrics = {name: found[name] for name in names if found[name] is not None}
            take_out_tuning(metrics, details)
            values = {name: metrics.get(name) for name in names}
            if values != {name: found[name] for name in names}:
                changed.append({f"at_{name}": found[name] for name in at} | values | {"details": compact(details)})
        if changed:
            metric = update(measurements).where(*(row[name] == value for name, value in at.items()))
            conn.execute(metric.values({name: bindparam(name) for name in names}), changed)
            text_of = update(Evidence).where(*(getattr(Evidence, name) == value for name, value in at.items()))
            conn.execute(text_of.values(details=bindparam("details")), changed)
            refresh(conn, run)
