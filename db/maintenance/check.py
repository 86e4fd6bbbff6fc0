"""Checks a database against itself: pages, references, blobs, and the counts and summaries of its runs."""

from __future__ import annotations

import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import JSON, ColumnElement, Connection, LargeBinary, Row, Text, or_, select, text, type_coerce
from sqlalchemy.exc import DBAPIError

from collector.masking import hidden_variables, mask
from db.arrays import PackedText, unpack
from db.connecting import Source, connected
from db.engine import file_of, shown
from db.errors import DamagedError, one_line
from db.masked import MaskedJson, MaskedText
from db.schema import Base, CellRow, Evidence, Meta, Run, Samples, summaries
from db.summaries import GROUP, computed

Kind = Literal["missing", "extra", "different", "broken", "secret"]

#: Findings of one kind that are listed; the rest of them are counted.
_EACH = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: `missing` from the database, `extra` in it, `different` in it, `broken` whatever one expects, or
    `secret`, which no command shows and nobody should keep.

    `subject` is the public name of what it is about, where there is one; `text` says what in one line.
    """

    kind: Kind
    subject: str
    text: str


def check_store(source: Source) -> list[Finding]:
    """What contradicts itself in a database: pages, references, blobs, counts and summaries of runs, its revision.

    Raises `StoreError` where it cannot be read, and `DamagedError` for a file whose pages are damaged, so that nothing that
    it says can be relied upon.
    """
    with connected(source) as conn:
        _check_pages(conn)
        return [*_revision(conn), *_references(conn), *_sums(conn), *_blobs(conn), *_secrets(conn)]


def damage_of(place: str | Path | None) -> DamagedError | None:
    """What to say of a damaged file after an unexpected error; None for a sound one, and for a server.

    SQLite keeps no checksums: it notices pages that contradict each other, and no byte that changed within a value.
    """
    path = file_of(place)
    if path is None or not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            answer = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return None  # locked, or not to be read: another trouble than damage
    except sqlite3.DatabaseError as error:
        answer = str(error)
    advice = "move it away and ingest the bundles again, they hold everything"
    return None if answer == "ok" else DamagedError(f"{shown(place)} is damaged ({one_line(answer)}); {advice}")


def _check_pages(conn: Connection) -> None:
    if conn.dialect.name != "sqlite":
        return
    try:
        answer = conn.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    except DBAPIError as error:
        answer = [str(error.orig)]
    if list(answer) != ["ok"]:
        raise DamagedError(
            f"the database is damaged ({one_line('; '.join(map(str, answer)), 160)}):"
            " run `inductor-watch db rebuild NEW_DB BUNDLES...`, the bundles hold everything"
        )


def _revision(conn: Connection) -> Iterator[Finding]:
    value = conn.execute(select(Meta.value).where(Meta.key == "revision")).scalar()
    if value is None or not value.isdecimal():
        yield Finding("broken", "revision", f"the revision of the data is {one_line(str(value))}, which is no number")


def _references(conn: Connection) -> Iterator[Finding]:
    """Rows of a file that refer to rows which are not there; a server lets no such row be."""
    if conn.dialect.name != "sqlite":
        return
    rows = conn.execute(text("PRAGMA foreign_key_check"))
    for (table, other), count in sorted(Counter((row.table, row.parent) for row in rows).items()):
        yield Finding("broken", table, f"{count} rows of {table} refer to no row of {other}")


def _sums(conn: Connection) -> Iterator[Finding]:
    """Counts and summaries of runs that are not those of their rows."""
    for run in conn.execute(select(Run).order_by(Run.id)).all():
        rows, counts = computed(conn, run.id)
        for name, value in counts.items():
            if getattr(run, name) != value:
                text = f"run {one_line(run.run_id)} says {getattr(run, name)} {name}: its rows {value}"
                yield Finding("different", run.run_id, text)
        stored = [dict(row) for row in conn.execute(select(summaries).where(summaries.c.run == run.id)).mappings()]
        by_group = ({tuple(row[name] for name in GROUP): row for row in some} for some in (stored, rows))
        of_store, expected = by_group
        for group in sorted(group for group in of_store | expected if of_store.get(group) != expected.get(group)):
            text = f"run {one_line(run.run_id)}: the summary of {group} is not that of its rows"
            yield Finding("different", run.run_id, text)


def _blobs(conn: Connection) -> Iterator[Finding]:
    """Samples and texts that cannot be unpacked, and samples that are not as many as they should be."""
    for run, run_id in conn.execute(select(Run.id, Run.run_id).order_by(Run.id)).all():
        bad = [row for row in conn.execute(_samples(run)) if not _whole(row)]
        bad += [row for row in conn.execute(_texts(run)) if not (_unpacks(row.details) and _unpacks(row.log_tail))]
        for row in bad[:_EACH]:
            what = getattr(row, "metric", "evidence")
            yield Finding(
                "broken", run_id, f"run {one_line(run_id)}, cell {row.cell_id}: {one_line(what)} cannot be read"
            )
        if len(bad) > _EACH:
            yield Finding("broken", run_id, f"run {one_line(run_id)}: {len(bad) - _EACH} more that cannot be read")


#: The column that names a row of each table that may hold secrets; for other tables the numbers of its key do.
_NAMES = {
    **{"environments": "environment_id", "testbeds": "testbed_id", "programs": "program_id", "configs": "config_id"},
    **{"commits": "sha", "runs": "run_id", "regressions": "regression_id"},
}


def _secrets(conn: Connection) -> Iterator[Finding]:
    """Rows that hold what is masked when it is read: variables that may be secret, passwords and tokens."""
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            if (raw := _unmasked(column)) is None:
                continue
            keys = [table.c[_NAMES[table.name]]] if table.name in _NAMES else [*table.primary_key.columns]
            for *key, value in conn.execute(select(*keys, raw).where(column.is_not(None))):
                if told := _secrets_in(value):
                    name = ", ".join(str(mask(part)) for part in key)
                    text = f"{table.name} {one_line(name)}: {column.name} has {told}"
                    yield Finding("secret", name, one_line(text, 400))


def _unmasked(column: ColumnElement[Any]) -> ColumnElement[Any] | None:
    """Return a column as it is stored; None for one whose type masks nothing."""
    match column.type:
        case MaskedText():
            return type_coerce(column, Text)
        case MaskedJson():
            return type_coerce(column, JSON)
        case PackedText():
            return type_coerce(column, LargeBinary)
    return None


def _secrets_in(value: Any) -> str:
    """Return what of a stored value is masked when it is read, in words; empty for nothing."""
    if isinstance(value, bytes):
        try:
            value = zlib.decompress(value).decode("utf-8", "replace")
        except zlib.error:
            return ""  # `_blobs` says so
    hidden = hidden_variables(value) if isinstance(value, dict) else ()
    if hidden:
        return f"the variables {', '.join(hidden)}"
    return "a password or a token" if mask(value) != value else ""


def _samples(run: int) -> Any:
    columns = (CellRow.cell_id, Samples.metric, Samples.count.label("size"), Samples.number_format, Samples.data)
    kept = or_(Samples.data.is_not(None), Samples.number_format.is_not(None))
    return select(*columns).join(CellRow, CellRow.id == Samples.cell).where(Samples.run == run, kept)


def _texts(run: int) -> Any:
    raw = [type_coerce(column, LargeBinary).label(column.key) for column in (Evidence.details, Evidence.log_tail)]
    return select(CellRow.cell_id, *raw).join(CellRow, CellRow.id == Evidence.cell).where(Evidence.run == run)


def _whole(row: Row[Any]) -> bool:
    if row.data is None or row.number_format is None:
        return False
    try:
        return len(unpack(row.number_format, row.data)) == int(row.size)
    except (zlib.error, ValueError, TypeError):
        return False


def _unpacks(data: bytes | None) -> bool:
    try:
        if data is not None:
            zlib.decompress(data)
    except zlib.error:
        return False
    return True
