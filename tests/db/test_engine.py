import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from db.engine import open_store, shown
from db.ingest import ingest_bundle
from db.maintenance import migrate
from db.nights import list_runs
from db.queries.cells import revision
from db.store_errors import StoreError
from tests.factories import new_store, night


def refusal(place, *, write=False):
    """What is said instead of opening a store: one line without its password, which is a secret."""
    with pytest.raises(StoreError) as caught:
        open_store(place, write=write)
    message = str(caught.value)
    assert "\n" not in message and "secret" not in message
    return message


@pytest.mark.parametrize("write", [True, False])
def test_what_is_no_store_is_refused_in_one_line_and_kept(tmp_path, write):
    (tmp_path / "torn.db").write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 20)
    assert "torn.db" in refusal(tmp_path / "torn.db", write=write)
    assert "is a folder" in refusal(tmp_path, write=write)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE songs (name TEXT)")
        assert "another program" in refusal(tmp_path / "other.db", write=write)
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]
    if write:  # even root can create nothing in this folder
        assert "cannot be written" in refusal("/proc/store.db", write=True)


def test_a_url_of_no_known_database_or_without_its_driver_is_one_line(monkeypatch):
    for place in ("mystery://host/name", "://", "sqlite://"):
        assert "no database" in refusal(place, write=True)
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    assert "psycopg[binary]" in refusal("postgresql://localhost/x", write=False)


def test_odd_file_names_open_the_file_of_that_name(tmp_path):
    for name in ("50% #1.db", "a?mode=memory.db"):
        open_store(tmp_path / name, write=True).dispose()
        assert (tmp_path / name).stat().st_size > 0
        assert revision(open_store(tmp_path / name, write=False)) == 0


def test_a_reader_works_beside_a_writer_and_cannot_write(store, location, opened):
    reader = opened(location)
    with reader.connect() as conn, pytest.raises(DBAPIError):
        conn.execute(text("DELETE FROM meta"))
    with store.begin() as conn:
        conn.execute(text("UPDATE meta SET value = '7'"))
        assert revision(reader) == 0
    assert revision(reader) == 7


def test_a_read_only_folder_can_be_read(tmp_path, monkeypatch, opened):
    folder = tmp_path / "shelf"
    folder.mkdir()
    store = new_store(folder / "store.db")
    ingest_bundle(store, night(tmp_path, "r1"))
    store.dispose()
    # Root may write everywhere, so the folder only says that it is read-only.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert [run.run_id for run in list_runs(opened(folder / "store.db"))] == ["r1"]
    assert [path.name for path in folder.iterdir()] == ["store.db"]


def test_first_writers_at_once_make_one_store(blank, opened):
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda place: open_store(place, write=True).dispose(), [blank] * 4))
    assert migrate.current(opened(blank)) == migrate.VERSIONS[-1]


def test_what_is_shown_of_a_place_has_no_password():
    assert shown("postgresql://me:secret@host/name") == "postgresql://me:***@host/name"
    place = "postgresql://me@host/name?password=secret&sslmode=require"
    assert shown(place) == "postgresql://me@host/name?sslmode=require"
    assert shown("sqlite:///a.db") == "a.db"


def test_a_reader_opens_a_file_whose_writer_was_killed_early(tmp_path, opened):
    """A new file is written with a rollback journal until it is told to use a log; a kill leaves that journal hot."""
    open_store(tmp_path / "store.db", write=True).dispose()
    script = (
        "import os, signal, sqlite3, sys\n"
        "conn = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "assert conn.execute('PRAGMA journal_mode = DELETE').fetchone() == ('delete',)\n"
        "conn.execute('PRAGMA cache_size = 1')\n"
        "conn.execute('BEGIN IMMEDIATE')\n"
        "conn.executemany('INSERT INTO meta VALUES (?, ?)', ((f'k{n}', 'x' * 500) for n in range(5000)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "store.db")], check=False)
    assert (tmp_path / "store.db-journal").stat().st_size > 0
    with opened(tmp_path / "store.db").connect() as conn:
        assert revision(conn) == 0
        assert conn.execute(text("SELECT COUNT(*) FROM meta")).scalar() == 1
