"""What is said of a server alone: its roles, its errors in one line, and values that a file is less strict about."""

import time
from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from db.engine import open_store
from db.ingest import ingest_bundle
from db.regression_records import list_regressions
from db.store_errors import StoreError
from tests.db import reads as queries
from tests.db.answers import answers
from tests.db.test_engine import refusal
from tests.factories import cell, night

#: As docs/store.md says it.
ROLE = """
    CREATE ROLE dash LOGIN PASSWORD 'secret-of-dash';
    GRANT USAGE ON SCHEMA public TO dash;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO dash;
    ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO dash;
"""


@pytest.fixture
def filled(postgres_url, tmp_path, opened):
    engine = opened(postgres_url, write=True)
    for number in range(2):
        ingest_bundle(engine, night(tmp_path, f"r{number}", minutes=number, cells=[cell()]))
    return engine


@pytest.fixture
def role(postgres, filled):
    """A user who may look, and how to open the store as that one."""
    database = filled.url.database
    postgres.say(ROLE, database)
    yield postgres.url(database, "dash")
    filled.dispose()
    postgres.say("DROP OWNED BY dash", database)
    postgres.say("DROP ROLE dash", database)


def test_a_user_who_may_only_select_reads_everything_and_writes_nothing(filled, role, tmp_path, opened):
    # Not even where the program itself would let it.
    reader, other = opened(role), opened(role, write=True)
    assert answers(reader) == answers(filled)
    assert list_regressions(reader) == []
    for engine, said in ((reader, "read-only"), (other, "permission denied")):
        for statement in ("DELETE FROM runs", "UPDATE meta SET value = '9'", "CREATE TABLE mine (x integer)"):
            with engine.connect() as conn, pytest.raises(DBAPIError, match=said):
                conn.execute(text(statement))
    with pytest.raises(StoreError, match=r"permission denied.*docs/store\.md"):
        ingest_bundle(other, night(tmp_path, "r9"))


def test_a_user_who_may_store_needs_no_right_to_change_the_schema(postgres, filled, role, tmp_path, opened):
    database = filled.url.database
    postgres.say("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO dash", database)
    postgres.say("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO dash", database)
    engine = opened(role, write=True)
    assert ingest_bundle(engine, night(tmp_path, "r9", minutes=9, branch="new", cells=[cell("new")])).new == 1
    with engine.connect() as conn, pytest.raises(DBAPIError, match="must be owner"):
        conn.execute(text("DROP TABLE regression_events"))


def test_what_is_no_store_on_a_server_is_one_line_that_says_what_to_do(postgres):
    url = postgres.blank()
    assert "is empty" in refusal(url)
    postgres.say("CREATE TABLE songs (name text)", url.partition("?")[0].rpartition("/")[2])
    for write in (False, True):
        assert "another program" in refusal(url, write=write)
    postgres.drop(url)
    assert "create it: createdb nowhere" in refusal(postgres.url("nowhere", password="secret"))
    assert "create it: createuser nobody-here" in refusal(postgres.url("postgres", "nobody-here", "secret"))
    for host in ("localhost:1", "no-such-host.invalid"):
        message = refusal(f"postgresql://me:secret@{host}/x")
        assert any(word in message for word in ("is the server up", "no such host", "does not answer"))


def test_a_wrong_password_is_one_line_without_it(postgres, role, opened):
    hba = postgres.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    try:
        hba.write_text(f"local all dash scram-sha-256\n{before}")
        postgres.say("SELECT pg_reload_conf()")
        until = time.monotonic() + 30
        with suppress(StoreError):
            while time.monotonic() < until:  # the server reads its files when it comes to it
                open_store(role, write=False).dispose()
        assert "correct the user or password" in refusal(role.replace("dash@", "dash:secret-wrong@"))
        assert "PGPASSWORD" in refusal(role)
        right = opened(role.replace("dash@", "dash:secret-of-dash@"))
        assert queries.revision(right) == 2
        assert "secret" not in str(right.url)
    finally:
        hba.write_text(before)
        postgres.say("SELECT pg_reload_conf()")


def test_one_writer_at_a_time_and_the_other_waits_only_so_long(filled, postgres_url, tmp_path, monkeypatch, opened):
    monkeypatch.setattr("db.engine._PATIENCE_S", 1)
    other = opened(postgres_url, write=True)
    with filled.begin() as conn:
        conn.execute(text("SELECT value FROM meta FOR UPDATE"))
        with pytest.raises(StoreError, match="another program is writing"):
            ingest_bundle(other, night(tmp_path, "r8", minutes=8))
    assert ingest_bundle(other, tmp_path / "r8.jsonl.gz").new == 9


def test_a_reader_sees_one_state_and_outlives_its_connection(filled, postgres, postgres_url, tmp_path, opened):
    reader = opened(postgres_url)
    with reader.connect() as conn:
        assert queries.revision(conn) == 2
        ingest_bundle(filled, night(tmp_path, "r8", minutes=8))
        assert queries.revision(conn) == 2
        assert len(queries.list_runs(conn)) == 2
    assert queries.revision(reader) == 3
    # A connection that the server ended is one line, and the next one works.
    with reader.connect() as conn:
        number = conn.execute(text("SELECT pg_backend_pid()")).scalar()
        postgres.say(f"SELECT pg_terminate_backend({number})")
        with pytest.raises(StoreError, match="the server closed the connection"):
            queries.revision(conn)
    assert queries.revision(reader) == 3
