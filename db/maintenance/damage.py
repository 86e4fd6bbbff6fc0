"""Finds out whether a database file is damaged, after an unexpected error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from db.engine import file_of, shown
from db.errors import DamagedError, one_line

_SOUND = "ok"


def damage_of(place: str | Path | None) -> DamagedError | None:
    """What to say of a damaged file; None for a sound one, and for a server, which looks after its own pages.

    SQLite keeps no checksums: it notices pages that contradict each other, and no byte that changed within a value.
    """
    path = file_of(place)
    if path is None or not path.is_file():
        return None
    said = _check(path)
    if said == _SOUND:
        return None
    return DamagedError(
        f"{shown(place)} is damaged ({one_line(said)}); move it away and ingest the bundles again, they hold everything"
    )


def _check(path: Path) -> str:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return _SOUND  # locked, or not to be read: another trouble than damage
    except sqlite3.DatabaseError as error:
        return str(error)
