"""The schema: one baseline, columns of new metrics, and databases from before the baseline."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text

from db.engine import open_store
from db.ingest import ingest_bundle
from db.maintenance import migrate
from db.maintenance.upkeep import rebuild
from db.regression_records import list_regressions
from db.schema import Commit, CommitLink, Tag
from db.store_errors import StoreError
from scripts.frozen_store import BASE, BUNDLES, NEW
from tests.db.answers import answers
from tests.factories import COMMIT_A, COMMIT_B, cell, night, passing

#: Files that the code of the time wrote, as SQL: two runs and a regression with its history.
OLD_STORES = Path(__file__).parents[1] / "data"


def test_a_metric_that_is_newer_than_the_database_gets_its_column(store, location, tmp_path, opened):
    ingest_bundle(store, night(tmp_path, "r1"))
    before = answers(store)
    with store.begin() as conn:
        conn.execute(text("DROP VIEW results"))
        for column in ("measurements DROP COLUMN compile_instructions", "summaries DROP COLUMN n_eager_ms"):
            conn.execute(text(f"ALTER TABLE {column}"))
    with pytest.raises(StoreError, match="inductor-watch db upgrade"):
        open_store(location, write=False)
    opened(location, write=True)
    assert {**answers(opened(location)), "history": None} == {**before, "history": None}
    assert ingest_bundle(store, night(tmp_path, "r2", minutes=60)).new == 9


@pytest.fixture(scope="module")
def new_answers(tmp_path_factory):
    """What a new store answers, with the bundles that the frozen ones were made of."""
    new = open_store(tmp_path_factory.mktemp("new") / "new.db", write=True)
    for bundle in sorted(BUNDLES.glob("*.jsonl.*")):
        ingest_bundle(new, bundle)
    yield answers(new)
    new.dispose()


@pytest.mark.parametrize("frozen", sorted(OLD_STORES.glob("store_*.sql.gz")), ids=lambda path: path.name)
def test_a_store_of_a_version_is_upgraded_and_answers_as_a_new_one(frozen, new_answers, tmp_path, opened):
    """`scripts/frozen_store.py` made it: from bundles that are still there, with a record that only a store has."""
    path = tmp_path / "frozen.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(gzip.decompress(frozen.read_bytes()).decode())
    upgraded = opened(path, write=True)
    assert answers(upgraded) == new_answers
    (record,) = list_regressions(upgraded)
    assert (record.base_run, record.onset_run, record.events[0].author) == (BASE, NEW, "ann")
    assert "seen by hand" in record.events[0].text


@pytest.fixture
def old_store(request, tmp_path):
    """A file of a schema from before the baseline."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript((OLD_STORES / f"store_{request.param}.sql").read_text())
    return path


@pytest.mark.parametrize("old_store", ["0003", "0006"], indirect=True)
def test_a_rebuild_keeps_what_people_wrote_in_an_older_database(old_store, tmp_path, opened):
    bundles = [
        night(tmp_path, name, minutes=minutes, commit=commit, cells=[cell()])
        for name, commit, minutes in (("r1", COMMIT_A, 0), ("r2", COMMIT_B, 60))
    ]
    for write in (True, False):
        with pytest.raises(StoreError, match=r"schema 000[36], from before this program: .*db rebuild NEW_DB") as told:
            open_store(old_store, write=write)
        assert f"--db {old_store}`" in str(told.value)
    old = opened(old_store, older=True)
    is_first = migrate.current(old) == "0003"
    report = rebuild(tmp_path / "new.db", bundles, old)
    assert (report.runs, report.measurements, report.regressions, report.lost) == (2, 2, 1, ())
    assert report.notes == (("2026-08-03 ann on run r1: the fan was broken",) if is_first else ())
    new = opened(tmp_path / "new.db")
    (found,) = list_regressions(new)
    assert (found.cell_id, found.state, found.base_run, found.onset_run) == (cell().cell_id, "acknowledged", "r1", "r2")
    events = [(event.author, event.to_state, event.text) for event in found.events]
    assert events[:2] == [("ann", "new", ""), ("bob", "acknowledged", "seen")]
    assert events[2:] == ([("bob", "acknowledged", "it is the new scheduler")] if is_first else [])
    if not is_first:
        with new.connect() as conn:
            line = conn.execute(select(Commit.sha, Commit.committed_at).order_by(Commit.position)).all()
            assert line == [(COMMIT_A, 2000.0), (COMMIT_B, 2001.0)]
            assert conn.execute(select(Tag.name, Tag.sha)).all() == [("v1", COMMIT_A)]
            assert conn.execute(select(CommitLink.kind)).scalars().all() == ["reverts"]


def test_compile_times_of_an_older_database_hold_no_tuning_afterwards(store, location, tmp_path):
    def old(which):
        phases = {"autotune_while_running": 0.5} if which.model == "gpt2" else {"dynamo": 9.0}
        return passing(which, details={"compile_cpu_s": 8.0, "compile_phases_s": phases})

    def stored(engine):
        query = "SELECT model, compile_cold_s, tuning_s FROM results ORDER BY model"
        of_group = "SELECT n_compile_cold_s, compile_cold_s FROM summaries"
        with engine.connect() as conn:
            return conn.execute(text(query)).all(), conn.execute(text(of_group)).one()

    ingest_bundle(store, night(tmp_path, "r1", cells=[cell(), cell("gpt2")], make=old))
    now = stored(store)
    ((_, bert_s, of_bert), gpt2), group = now
    assert (of_bert, gpt2, group) == (0.0, ("gpt2", None, None), (1, bert_s))
    with store.begin() as conn:  # as a program of before wrote it
        conn.execute(text("UPDATE alembic_version SET version_num = '0009'"))
        conn.execute(text("UPDATE measurements SET tuning_s = NULL, compile_cold_s = coalesce(compile_cold_s, 30)"))
        conn.execute(text("UPDATE summaries SET n_compile_cold_s = 2, compile_cold_s = 29"))
    open_store(location, write=True).dispose()
    assert stored(store) == now


def test_a_rebuild_reads_a_database_that_was_not_upgraded(store, location, tmp_path, opened):
    bundle = night(tmp_path, "r1", cells=[cell()])
    ingest_bundle(store, bundle)
    with store.begin() as conn:
        conn.execute(insert(Tag).values(repo="pytorch/pytorch", name="v1", sha=COMMIT_A))
        conn.execute(text("DROP VIEW results"))
        conn.execute(text("ALTER TABLE measurements DROP COLUMN fallbacks"))
        conn.execute(text("UPDATE alembic_version SET version_num = '0007'"))
    assert rebuild(tmp_path / "new.db", [bundle], opened(location, older=True)).lost == ()
    with opened(tmp_path / "new.db").connect() as conn:
        assert conn.execute(select(Tag.name, Tag.sha)).all() == [("v1", COMMIT_A)]
    assert migrate.current(store) == "0007"
    with opened(location, write=True).connect() as conn:
        assert migrate.current(conn) == migrate.VERSIONS[-1]
        assert not migrate.missing_columns(conn)


def test_another_language_sorts_alike_and_another_encoding_is_refused(postgres, opened):
    other = postgres.blank("TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'")
    with opened(other, write=True).begin() as conn:
        conn.execute(text("INSERT INTO models (suite, name) VALUES ('s', 'b'), ('s', 'B'), ('s', 'a-b'), ('s', 'aa')"))
        found = conn.execute(text("SELECT name FROM models ORDER BY name")).scalars().all()
    assert found == sorted(found) == ["B", "a-b", "aa", "b"]
    latin = postgres.blank("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match=r"LATIN1.*createdb --encoding=UTF8"):
        open_store(latin, write=True)
    for url in (other, latin):
        postgres.drop(url)
