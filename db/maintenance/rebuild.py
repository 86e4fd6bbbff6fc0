"""Builds a new database from bundles, and copies from the old one what no bundle has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Engine, func, insert, inspect, select, text, true, update
from sqlalchemy.exc import DBAPIError

from collector.usage_errors import BundleError
from db.connecting import changing, connected
from db.engine import file_of, open_store, shown
from db.ingest import IngestReport, ingest_bundle
from db.queries.cells import revision
from db.schema import (
    Base,
    Branch,
    CellRow,
    Commit,
    CommitLink,
    ConfigRow,
    Meta,
    Model,
    Regression,
    RegressionEvent,
    Run,
    Series,
    Tag,
    Testbed,
)
from db.store_errors import StoreError, explain, one_line
from db.stored_values import from_epoch

_CHUNK = 5_000
#: Columns of a regression that refer to runs.
_RUNS = ("base_run", "onset_run")
_ALL = true()
_OF_SERIES = CellRow.id.in_(select(Series.cell))
#: Tables of which bundles know nothing, or not all, and which of their rows. They are copied first, number for number.
_CARRIED: dict[type[Base], ColumnElement[bool]] = {
    **dict.fromkeys((Commit, CommitLink, Branch, Tag), _ALL),
    # The regressions, and the cells and testbeds that they are about: perhaps no bundle has them any more.
    Testbed: Testbed.id.in_(select(Series.testbed)),
    Model: Model.id.in_(select(CellRow.model).where(_OF_SERIES)),
    ConfigRow: ConfigRow.id.in_(select(CellRow.config).where(_OF_SERIES)),
    CellRow: _OF_SERIES,
    **dict.fromkeys((Series, Regression, RegressionEvent), _ALL),
}


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What the new database holds. `lost` are runs of the old one that are in none of the bundles.

    `damage` lists what of the bundles could not be read, `unread` has a line for each file that could not be stored.
    `notes` has the notes of an old schema, a line each, which databases no longer hold.
    """

    runs: int
    measurements: int
    commits: int
    regressions: int
    lost: tuple[str, ...]
    damage: tuple[str, ...]
    unread: tuple[str, ...]
    notes: tuple[str, ...] = ()


def rebuild(
    location: str | Path,
    bundles: Iterable[Path],
    old: Engine | None = None,
    *,
    on_bundle: Callable[[Path, IngestReport], None] | None = None,
) -> RebuildReport:
    """Builds a new database from the bundles, in any order.

    Commits with their facts, links and tags, branches with their start, and regressions with their history come from
    `old`, which may have a schema from before the baseline. A file appears when it is complete; on a server all of it is
    one transaction. `on_bundle` is called after each bundle. A file that is no bundle is reported, and the others are
    stored. Raises `BundleError` where none of the files is a bundle, and `StoreError` where there is a database with data
    already, or it cannot be written. There is then no new one.
    """
    with _new(location) as engine:
        return _build(engine, bundles, old, on_bundle)


@contextmanager
def _new(location: str | Path) -> Iterator[Engine]:
    path = file_of(location)
    if path is None:
        engine = open_store(location, write=True)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    if path.exists():
        raise StoreError(f"{shown(location)} is there already: name a new file, nothing is replaced")
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)  # what an earlier try left
    engine = open_store(partial, write=True)
    try:
        yield engine
        # Puts the write-ahead log into the file, which is then all there is of the database.
        with closing(engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        engine.dispose()
        partial.rename(path)
    finally:
        engine.dispose()
        _remove(partial)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _build(
    engine: Engine, bundles: Iterable[Path], old: Engine | None, on_bundle: Callable[[Path, IngestReport], None] | None
) -> RebuildReport:
    damage: list[str] = []
    unread: list[str] = []
    stored = 0
    with changing(engine) as change:
        for table in (Run, Commit, Regression):
            if change.conn.execute(select(table.id).limit(1)).first() is not None:
                raise StoreError("the new database holds data already: name an empty one, nothing is replaced")
        if old is not None:
            _carry(old, change.conn)
        for path in bundles:
            try:
                report = ingest_bundle(change.conn, path)
            except BundleError as error:
                unread.append(str(error))
                continue
            stored += 1
            damage += [f"{path}: {line}" for line in report.damage]
            if on_bundle:
                on_bundle(path, report)
        if unread and not stored:
            raise BundleError(f"no file is a bundle, the new database is not made: {unread[0]}")
        if old is not None:
            _pin_runs(old, change.conn)
            # A reader that caches by revision must see that this is another database.
            number = revision(change.conn) + revision(old) + 1
            change.conn.execute(update(Meta).where(Meta.key == "revision").values(value=str(number)))
        conn = change.conn
        runs, measured = conn.execute(
            select(func.count(), func.coalesce(func.sum(Run.measured), 0)).select_from(Run)
        ).one()
        commits, regressions = (
            conn.execute(select(func.count()).select_from(table)).scalar_one() for table in (Commit, Regression)
        )
        lost: set[str] = set()
        notes: tuple[str, ...] = ()
        if old is not None:
            notes = _notes(old)
            with connected(old) as source:
                lost.update(source.execute(select(Run.run_id)).scalars())
            lost.difference_update(conn.execute(select(Run.run_id)).scalars())
    return RebuildReport(runs, measured, commits, regressions, tuple(sorted(lost)), tuple(damage), tuple(unread), notes)


def _carry(old: Engine, conn: Connection) -> None:
    """Copies what the tables of both databases have in common; regressions get their runs when these are stored."""
    try:
        with old.connect() as source:
            schema = inspect(source)
            there = set(schema.get_table_names())
            for table, wanted in _CARRIED.items():
                # Tables of names are read by way of `series`, which is as old as the regressions.
                if table.__tablename__ not in there or (wanted is not _ALL and Series.__tablename__ not in there):
                    continue
                known = {column["name"] for column in schema.get_columns(table.__tablename__)} - set(_RUNS)
                query = select(*(column for column in table.__table__.columns if column.name in known)).where(wanted)
                rows = source.execution_options(yield_per=_CHUNK).execute(query).mappings()
                for part in rows.partitions(_CHUNK):
                    conn.execute(insert(table), [dict(row) for row in part])
    except DBAPIError as error:
        raise explain(error, "the old database") from error
    if conn.dialect.name == "postgresql":
        for table in _CARRIED:
            if "id" in table.__table__.c:
                _count_on(conn, table)


def _pin_runs(old: Engine, conn: Connection) -> None:
    """Gives the copied regressions the runs at their base and onset, which have other numbers in the new database."""
    with connected(old) as source:
        if not inspect(source).has_table(Regression.__tablename__):
            return
        for name in _RUNS:
            column = Regression.__table__.c[name]
            for number, run_id in source.execute(select(Regression.id, Run.run_id).join(Run, Run.id == column)):
                run = select(Run.id).where(Run.run_id == run_id).scalar_subquery()
                conn.execute(update(Regression).where(Regression.id == number).values({name: run}))


def _notes(old: Engine) -> tuple[str, ...]:
    """Return the notes that people wrote in a schema from before the baseline, oldest first."""
    with connected(old) as source:
        if not inspect(source).has_table("notes"):
            return ()
        rows = source.execute(text("SELECT subject, name, at, author, text FROM notes ORDER BY at, id")).all()
    return tuple(
        one_line(f"{from_epoch(row.at):%Y-%m-%d} {row.author} on {row.subject} {row.name}: {row.text}", 400)
        for row in rows
    )


def _count_on(conn: Connection, table: type[Base]) -> None:
    """The server's next number for a new row comes after those that were given."""
    highest = select(func.max(table.__table__.c.id)).scalar_subquery()
    sequence = func.pg_get_serial_sequence(table.__tablename__, text("'id'"))
    conn.execute(select(func.setval(sequence, func.coalesce(highest, 1), highest.is_not(None))))
