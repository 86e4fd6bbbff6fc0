"""The schema's versions: which one a database has, and how it gets to another. Alembic, set up in code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from db.base import VERSIONS

# Alembic takes longer to import than most questions take to answer, and only a change of the schema needs it.
if TYPE_CHECKING:
    from alembic.config import Config

_SCRIPTS = Path(__file__).parents[1] / "migrations"


def head() -> str:
    """The version that this program reads and writes."""
    return VERSIONS[-1]


def current(source: Engine | Connection) -> str | None:
    """The version of a database; None where it has none, because it is empty or not ours."""
    if isinstance(source, Engine):
        with source.connect() as conn:
            return current(conn)
    if not inspect(source).has_table("alembic_version"):
        return None
    return source.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade(engine: Engine, version: str = "head") -> None:
    """Brings a database up to a version, in one transaction; nothing happens where it is there already."""
    from alembic import command

    with engine.begin() as conn:
        _take_turn(conn)
        if current(conn) != (head() if version == "head" else version):
            command.upgrade(_config(conn), version)
            _order_by_bytes(conn)


def downgrade(engine: Engine, version: str) -> None:
    """Takes a database down to a version (`base`: no tables, no data), in one transaction."""
    from alembic import command

    with engine.begin() as conn:
        _take_turn(conn)
        command.downgrade(_config(conn), version)


def _take_turn(conn: Connection) -> None:
    """Waits until nobody else changes the schema. In a file, a writer's transaction is a turn already."""
    if conn.dialect.name == "postgresql":
        conn.execute(text("SELECT pg_advisory_xact_lock(hashtext('inductor-watch schema'))"))


_OTHER_TEXTS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'
    ORDER BY table_name, ordinal_position
"""


def _order_by_bytes(conn: Connection) -> None:
    """Sorts and compares texts as SQLite does, whatever language the server speaks: equal data, equal answers."""
    if conn.dialect.name != "postgresql":
        return
    quoted = conn.dialect.identifier_preparer.quote_identifier
    changes: dict[str, list[str]] = {}
    for table, column in conn.execute(text(_OTHER_TEXTS)):
        changes.setdefault(table, []).append(f'ALTER COLUMN {quoted(column)} TYPE text COLLATE "C"')
    for table, parts in changes.items():
        conn.execute(text(f"ALTER TABLE {quoted(table)} {', '.join(parts)}"))


def _config(conn: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    # A per cent sign in a path would be taken for a variable.
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = conn
    return config
