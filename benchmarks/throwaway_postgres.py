"""A PostgreSQL server with its default settings, durable ones included, for the length of a benchmark.

The tests have one of their own (`tests/postgres.py`) that keeps nothing safe: its times would not be honest here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_USER = "postgres"


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database on a new server, which is stopped and removed afterwards.

    Raises:
        SystemExit: no server is installed here, or none may be started.
    """
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not binaries:
        raise SystemExit("no PostgreSQL server is installed: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    as_user = ["runuser", "-u", _USER, "--"] if os.geteuid() == 0 else []
    if as_user:
        os.chown(folder, pwd.getpwnam(_USER).pw_uid, -1)

    def say(program: str, *words: str) -> None:
        done = subprocess.run(
            [*as_user, str(binaries[-1].with_name(program)), "-D", str(folder / "data"), *words],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{program} failed: {done.stderr.strip()[-300:]}")

    try:
        say("initdb", "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C")
        say("pg_ctl", "-l", str(folder / "log"), "-o", f"-c listen_addresses='' -k {folder}", "-w", "start")
        try:
            yield f"postgresql://bench@/postgres?host={folder}"
        finally:
            say("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
