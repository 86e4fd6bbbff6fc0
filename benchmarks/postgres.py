"""A throw-away PostgreSQL server for a benchmark or a test session, and empty, migrated databases of it."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url

from db.engine import open_store

#: The superuser of the server; a test that wants others creates them.
ADMIN = "watch"
_TEMPLATE = "migrated"
_START_S = 60
_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "max_parallel_workers_per_gather": "0",
}
_SET_PARENT_DEATH_SIGNAL = 1


class NoServerError(Exception):
    """Why no server can be started here, in one line."""


@dataclass(slots=True)
class Server:
    """A running server; `folder` holds its data and its socket."""

    folder: Path
    process: subprocess.Popen[bytes]
    _names: Iterator[int] = field(default_factory=count)
    _has_template: bool = False
    _admin: Any = None

    def url(self, database: str, user: str = ADMIN, password: str | None = None) -> str:
        """Return the URL under which a database of it is opened."""
        found = URL.create("postgresql", user, password, database=database, query={"host": str(self.folder)})
        return found.render_as_string(hide_password=False)

    def say(self, statement: str, database: str = "postgres") -> str:
        """Execute a statement as the superuser, outside of any transaction; return the first value that it gives, as text."""
        import psycopg

        if database == "postgres":
            self._admin = self._admin or psycopg.connect(self.url(database), autocommit=True)
            return _first(self._admin, statement)
        with psycopg.connect(self.url(database), autocommit=True) as conn:
            return _first(conn, statement)

    def blank(self, options: str = "") -> str:
        """Return the URL of a new database, without any table unless the options name a template."""
        name = f"test{next(self._names)}"
        self.say(f'CREATE DATABASE "{name}" {options}')
        return self.url(name)

    def migrated(self) -> str:
        """Return the URL of an empty store: a copy of one that was migrated once."""
        if not self._has_template:
            self.say(f'CREATE DATABASE "{_TEMPLATE}"')
            open_store(self.url(_TEMPLATE), write=True).dispose()
            self._has_template = True
        return self.blank(f'TEMPLATE "{_TEMPLATE}" STRATEGY file_copy')

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.say(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def stop(self) -> None:
        """End the server and remove all that it had."""
        self.process.send_signal(signal.SIGQUIT)  # at once: nothing of it is wanted
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(settings: Mapping[str, str] | None = None) -> Server:
    """Return a new server; its settings are those of a test, which keep nothing safe, or those given.

    Raises:
        NoServerError: there are no binaries, no driver, or no user who may run them.
    """
    binaries, user = _binaries(), _user()
    if find_spec("psycopg") is None:
        raise NoServerError("psycopg is not installed: pip install 'psycopg[binary]'")
    # Not below pytest's own folder: the path of a socket may have a hundred characters, and others must get there.
    folder = Path(tempfile.mkdtemp(prefix="watch-pg-"))
    if user:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    data, log = folder / "data", folder / "log"
    who = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    make = [binaries / "initdb", "-D", data, "-U", ADMIN, "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
    made = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False, **who)
    if made.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise NoServerError(f"initdb failed: {' '.join(made.stderr.split())[-200:]}")
    chosen = {
        **(_SETTINGS if settings is None else settings),
        "listen_addresses": "",
        "unix_socket_directories": folder,
    }
    command = [binaries / "postgres", "-D", data, *(f"--{name}={value}" for name, value in chosen.items())]
    with log.open("wb") as stream:
        # Nothing else runs in the child before it becomes postgres.
        how = {"cwd": folder, "preexec_fn": _die_with_parent, **who}
        process = subprocess.Popen(command, stdout=stream, stderr=stream, **how)
    return _ready(Server(folder, process))


def _first(conn: Any, statement: str) -> str:
    cursor = conn.execute(statement.encode())
    row = cursor.fetchone() if cursor.description else None
    return str(row[0]) if row else ""


def _ready(server: Server) -> Server:
    import psycopg

    until = time.monotonic() + _START_S
    while time.monotonic() < until and server.process.poll() is None:
        with suppress(psycopg.OperationalError):
            server.say("SELECT 1")
            return server
        time.sleep(0.05)
    said = (server.folder / "log").read_text(errors="replace")
    server.stop()
    raise NoServerError(f"the server did not start: {' '.join(said.split())[-200:]}")


def _binaries() -> Path:
    """Return the folder of the newest server that is installed."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not packaged and not on_path:
        raise NoServerError("no PostgreSQL server is installed: apt-get install postgresql")
    return packaged[-1].parent if packaged else Path(str(on_path)).resolve().parent


def _user() -> str:
    """Return the user to run it as; empty for this one, since only root must not."""
    if os.geteuid() != 0:
        return ""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoServerError("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _die_with_parent() -> None:
    """End this process with its parent: a session that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGQUIT)
