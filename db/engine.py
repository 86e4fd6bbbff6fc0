"""Open a store: resolve its path or URL, check what may be done with it, and say in one line what is wrong with it."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from db.maintenance import migrate
from db.store_errors import StoreError, explain, one_line

#: The environment variable that names the store if no path or URL is given.
VARIABLE = "INDUCTOR_WATCH_DB"
DEFAULT = "inductor-watch.db"

_ELSEWHERE = f"choose another place with --db or {VARIABLE}"
_FILL_IT = "run `inductor-watch nightly`, or `inductor-watch ingest BUNDLE`"

#: Seconds of waiting for another writer: an ingest takes a few at most.
_PATIENCE_S = 30
_READING = ("query_only = 1", "mmap_size = 268435456", "cache_size = -65536", "temp_store = memory")
_WRITING = ("synchronous = NORMAL", "foreign_keys = 1", "cache_size = -65536")
_CONNECT_S = 15
#: Parts of a URL's query that nobody else should read.
_SECRET = ("password", "sslpassword", "passfile", "sslkey", "service", "servicefile")


def open_store(location: str | Path | None = None, *, write: bool, older: bool = False) -> Engine:
    """Open the store at a path or database URL; without one, at INDUCTOR_WATCH_DB or `inductor-watch.db` in this folder.

    A writer creates missing tables and columns of new metrics; a reader cannot change anything. A writer creates a missing
    file, but not a missing database on a server. With `older` a reader also opens an older schema, even one from before the
    baseline, for `db.maintenance.upkeep`. Raises `StoreError`, in one line that says why and what to do, if the store cannot
    be opened, or not for this purpose.
    """
    url = _url(_place(location))
    if url.drivername == "sqlite" and url.database:
        path = Path(url.database)
        _check_file(path, write=write)
        engine = _sqlite(path, write=write)
    else:
        engine = _server(url, write=write)
    try:
        _check_version(engine, shown(location), write=write, older=older)
    except DBAPIError as error:
        engine.dispose()
        raise explain(error, shown(location)) from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def shown(location: str | Path | None = None) -> str:
    """Return the path or URL of a store, resolved as in `open_store`, in a form that may be printed: without its passwords."""
    url = _url(_place(location))
    if url.drivername == "sqlite":
        return one_line(str(url.database), 200)
    url = url.difference_update_query(_SECRET).set(drivername=url.get_backend_name())
    return one_line(url.render_as_string(hide_password=True), 200)


def file_of(location: str | Path | None = None) -> Path | None:
    """Return the file that a path or URL names; None for a database on a server."""
    url = _url(_place(location))
    return Path(url.database) if url.drivername == "sqlite" and url.database else None


def _place(location: str | Path | None) -> str:
    return str(location) if location is not None else os.environ.get(VARIABLE) or DEFAULT


def _url(place: str) -> URL:
    if "://" not in place:
        return URL.create("sqlite", database=str(Path(place).expanduser()))
    try:
        url = make_url(place)
        # psycopg 3 is the driver that the `postgres` extra brings.
        return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgres", "postgresql") else url
    except (ArgumentError, ValueError) as error:
        shown = one_line(place.partition("://")[0])
        raise StoreError(f"{shown}://... is no database URL: write a path or postgresql://user@host/name") from error


def _server(url: URL, *, write: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        raise StoreError(f"{one_line(str(url))} is no database in a file: write its path, or sqlite:///PATH")
    unknown = f"{url.drivername} is no database that inductor-watch knows: write a path or postgresql://..."
    if url.get_backend_name() != "postgresql":
        raise StoreError(unknown)
    asked = url.query.get("options", ())
    settings = [asked] if isinstance(asked, str) else [*asked]
    settings += [f"-c lock_timeout={_PATIENCE_S}s"] if write else ["-c default_transaction_read_only=on"]
    try:
        return create_engine(
            url.difference_update_query(["options"]),
            pool_pre_ping=True,
            # A reader sees one state of the data in all queries of a transaction, as it does in a file.
            isolation_level="READ COMMITTED" if write else "REPEATABLE READ",
            connect_args={"options": " ".join(settings), "application_name": "inductor-watch"}
            | ({} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_S}),
        )
    except NoSuchModuleError as error:
        raise StoreError(unknown) from error
    except ImportError as error:
        raise StoreError(
            f"{url.drivername} needs a driver that is not installed: pip install 'psycopg[binary]'"
        ) from error


def _check_file(path: Path, *, write: bool) -> None:
    shown = one_line(str(path), 200)
    if path.is_dir():
        raise StoreError(f"{shown} is a folder: name a file in it with --db or {VARIABLE}")
    if not path.exists():
        if not write:
            raise StoreError(f"{shown}: no database here yet: {_FILL_IT}")
        if not path.parent.is_dir():
            raise StoreError(f"{shown}: its folder does not exist: create it, or {_ELSEWHERE}")
    if write and not (os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))):
        raise StoreError(f"{shown} cannot be written, it or its folder is read-only: {_ELSEWHERE}")


def _sqlite(path: Path, *, write: bool) -> Engine:
    # A reader's connection may write, so that SQLite can undo what a killed writer left; `query_only` forbids other writes.
    query = {"mode": "rwc" if write else "rw", "uri": "true"}
    if not write and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        # A write-ahead log needs a file beside the database. Where none can be created, no log can appear later either.
        query["immutable"] = "1"
    url = URL.create("sqlite", database=path.absolute().as_uri(), query=query)
    engine = create_engine(url, connect_args={"timeout": _PATIENCE_S})
    begin = "BEGIN IMMEDIATE" if write else "BEGIN"

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        # The driver would begin transactions late, and only before some statements; `start` begins all of them.
        connection.isolation_level = None
        if write:
            _use_log(connection)
        for pragma in _WRITING if write else _READING:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        # A writer takes its turn at once: a writer that read first could not wait for another without losing its snapshot.
        connection.exec_driver_sql(begin)

    return engine


def _use_log(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on, and try again where SQLite refuses: two processes may do so at once in a new file."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _check_version(engine: Engine, shown: str, *, write: bool, older: bool) -> None:
    with engine.connect() as conn:
        # In this order: if another process creates the tables in between, their version is there, so they are recognized.
        is_empty = not inspect(conn).get_table_names()
        version = migrate.current(conn)
        is_current = version == migrate.VERSIONS[-1] and not migrate.missing_columns(conn)
    if is_current:
        return
    if version is None and not is_empty:
        raise StoreError(f"{shown} is a database of another program: {_ELSEWHERE}")
    if version is not None and migrate.is_older(version):
        if older and not write:
            return
        raise StoreError(
            f"{shown} has schema {version}, from before this program: build a new database from its bundles with"
            f" `inductor-watch db rebuild NEW_DB BUNDLES... --db {shown}`, which keeps commits and regressions"
        )
    if version is not None and version not in migrate.VERSIONS:
        raise StoreError(
            f"{shown} has schema {one_line(version)}, newer than this program: update inductor-watch, or ingest the"
            " bundles into a new database"
        )
    if write:
        _check_encoding(engine, shown)
        migrate.upgrade(engine)
    elif older and version is not None:
        return  # opened as it is: `db rebuild` reads the parts that it knows
    elif is_empty:
        raise StoreError(f"{shown} is empty: {_FILL_IT}")
    else:
        raise StoreError(f"{shown} has schema {version}, older than this program's: run `inductor-watch db upgrade`")


def _check_encoding(engine: Engine, shown: str) -> None:
    """Raise `StoreError` unless the database stores UTF-8.

    Names and logs hold any character; a database with another encoding would refuse them one by one, and late.
    """
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as conn:
        encoding = conn.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise StoreError(
            f"{shown} has encoding {encoding}: make one with `createdb --encoding=UTF8 --template=template0 NAME`"
        )
