"""The schema: one baseline, and columns of new metrics."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, select, text
from sqlalchemy.exc import DBAPIError

from collector.metrics import METRICS
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.maintenance import migrate
from db.schema import Base, results
from tests.db.answers import answers
from tests.factories import night


def test_the_schema_is_the_declared_one(store):
    with store.connect() as conn:
        found = compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), Base.metadata)
        assert conn.execute(select(results)).all() == []
    assert found == []


def test_the_newest_script_is_the_version_that_the_program_claims():
    config = Config()
    config.set_main_option("script_location", str(migrate._SCRIPTS))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == migrate.VERSIONS


def test_upgrading_what_is_up_to_date_keeps_the_data(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "r1"))
    before = answers(store)
    migrate.upgrade(store)
    assert answers(store) == before


def test_a_metric_that_is_newer_than_the_database_gets_its_column(store, location, tmp_path):
    ingest_bundle(store, night(tmp_path, "r1"))
    before = answers(store)
    with store.begin() as conn:
        conn.execute(text("DROP VIEW results"))
        for column in ("measurements DROP COLUMN compile_instructions", "summaries DROP COLUMN n_eager_ms"):
            conn.execute(text(f"ALTER TABLE {column}"))
    with pytest.raises(StoreError, match="inductor-watch db upgrade"):
        open_store(location, write=False)
    open_store(location, write=True).dispose()
    reader = open_store(location, write=False)
    assert {**answers(reader), "history": None} == {**before, "history": None}
    assert ingest_bundle(store, night(tmp_path, "r2", minutes=60)).new == 9
    reader.dispose()


def test_a_failing_creation_leaves_nothing_behind(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'store.db'}")
    with engine.begin() as conn:
        conn.execute(text("CREATE TABLE results (x INTEGER)"))  # in the place of the view, which is created last
    with pytest.raises(DBAPIError):
        migrate.upgrade(engine)
    assert migrate.current(engine) is None


def test_a_server_that_sorts_by_another_language_still_gives_the_same_order(postgres):
    url = postgres.blank("TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'")
    engine = open_store(url, write=True)
    with engine.begin() as conn:
        conn.execute(text("INSERT INTO models (suite, name) VALUES ('s', 'b'), ('s', 'B'), ('s', 'a-b'), ('s', 'aa')"))
        found = conn.execute(text("SELECT name FROM models ORDER BY name")).scalars().all()
    assert found == sorted(found) == ["B", "a-b", "aa", "b"]
    engine.dispose()
    postgres.drop(url)


def test_a_server_database_of_another_encoding_is_refused_with_the_way_to_make_one(postgres):
    url = postgres.blank("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    with pytest.raises(StoreError, match=r"LATIN1.*createdb --encoding=UTF8"):
        open_store(url, write=True)
    postgres.drop(url)


def test_opening_from_another_folder_finds_the_migrations(tmp_path):
    script = "from db.engine import open_store; open_store('here.db', write=True).dispose()"
    environment = {key: value for key, value in os.environ.items() if key != "INDUCTOR_WATCH_DB"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environment)
    assert migrate.current(open_store(tmp_path / "here.db", write=False)) == migrate.VERSIONS[-1]


def test_every_metric_is_a_column_of_the_table_and_of_the_view(store):
    with store.connect() as conn:
        look = inspect(conn)
        for table in ("measurements", "results"):
            types = {column["name"]: str(column["type"]) for column in look.get_columns(table)}
            assert {types[name].split("(")[0] for name in METRICS} <= {"DOUBLE", "DOUBLE PRECISION"}, table
