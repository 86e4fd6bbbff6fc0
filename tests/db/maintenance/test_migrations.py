"""The schema: one baseline, and columns of new metrics."""

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from collector.metrics import METRICS
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.maintenance import migrate
from tests.db.answers import answers
from tests.factories import night


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


def test_every_metric_is_a_column_of_the_table_and_of_the_view(store):
    with store.connect() as conn:
        look = inspect(conn)
        for table in ("measurements", "results"):
            types = {column["name"]: str(column["type"]) for column in look.get_columns(table)}
            assert {types[name].split("(")[0] for name in METRICS} <= {"DOUBLE", "DOUBLE PRECISION"}, table
