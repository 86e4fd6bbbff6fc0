import os
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, inspect, select, text

from db import migrate
from db.base import VERSIONS, Base
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.runs import list_runs
from tests.db.answers import answers
from tests.factories import cell, night


def tables_in_words(engine):
    """What each table and index is made of; the order of columns is left out, a later one is always last."""
    query = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%' ORDER BY name")
    with engine.connect() as conn:
        return {name: sorted(parts(" ".join(sql.split()))) for name, sql in conn.execute(query)}


def parts(sql):
    """The head of a CREATE, what stands between the commas of its outermost parentheses, and its end."""
    head, _, rest = sql.partition("(")
    body, _, end = rest.rpartition(")")
    found, depth = [""], 0
    for letter in body:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in (head, *found, end)]


def test_upgraded_schema_is_the_declared_schema(store):
    with store.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), Base.metadata) == []


def test_upgraded_tables_are_word_for_word_the_declared_ones(store, tmp_path):
    declared = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    Base.metadata.create_all(declared)
    # Alembic does not compare what is said to SQLite alone, such as WITHOUT ROWID.
    assert tables_in_words(store) == tables_in_words(declared)
    assert any("WITHOUT ROWID" in line for line in tables_in_words(store)["measurements"])
    assert "night TEXT DEFAULT '' NOT NULL" in tables_in_words(store)["runs"]


def test_newest_script_is_the_version_the_program_claims():
    config = Config()
    config.set_main_option("script_location", str(migrate._SCRIPTS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == migrate.head()
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(VERSIONS)


def test_down_and_up_again_leaves_an_empty_store_that_works(store, tmp_path):
    path = night(tmp_path, "r1")
    ingest_bundle(store, path)
    before = answers(store)
    migrate.downgrade(store, "base")
    assert inspect(store).get_table_names() == ["alembic_version"]
    assert migrate.current(store) is None
    migrate.upgrade(store)
    assert migrate.current(store) == migrate.head()
    ingest_bundle(store, path)
    assert answers(store) == before


def test_upgrading_what_is_up_to_date_keeps_the_data(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "r1"))
    before = answers(store)
    migrate.upgrade(store)
    assert answers(store) == before


def rows_of(engine):
    """Every row of every table."""
    with engine.connect() as conn:
        return {
            name: sorted(map(repr, conn.execute(text(f'SELECT * FROM "{name}"')).all()))  # noqa: S608
            for name in inspect(conn).get_table_names()
            if name != "alembic_version"
        }


def version_1(path, full):
    """A database of the first version, made by its own migration, with all that `full` holds."""
    engine = open_store(path, write=True)
    migrate.downgrade(engine, "base")
    migrate.upgrade(engine, "0001")
    assert migrate.current(engine) == "0001"
    with engine.begin() as conn:
        conn.execute(text("DELETE FROM meta"))
        conn.execute(text("PRAGMA defer_foreign_keys = 1"))
        for table in Base.metadata.sorted_tables:
            names = [column["name"] for column in inspect(conn).get_columns(table.name)]
            with full.connect() as source:
                rows = source.execute(select(*(table.c[name] for name in names))).mappings().all()
            if rows:
                columns = [table.c[name] for name in names]
                conn.execute(insert(table), [{c.name: row[c.name] for c in columns} for row in rows])
    return engine


@pytest.fixture
def two_nights(store, tmp_path):
    """Two runs of one night, and one that is a night of its own."""
    ingest_bundle(store, night(tmp_path, "r1", night="n"))
    ingest_bundle(store, night(tmp_path, "r2", night="n", minutes=1, cells=[cell("other")]))
    ingest_bundle(store, night(tmp_path, "r3", minutes=60))
    return store


def test_runs_of_the_first_version_become_nights_of_their_own_and_nothing_else_changes(two_nights, tmp_path):
    old = version_1(tmp_path / "old.db", two_nights)
    before = rows_of(old)
    assert len(before["measurements"]) == 19
    old.dispose()

    old = open_store(tmp_path / "old.db", write=True)

    assert migrate.current(old) == migrate.head()
    assert [(run.run_id, run.night) for run in list_runs(old)] == [("r3", "r3"), ("r2", "r2"), ("r1", "r1")]
    after = rows_of(old)
    assert {name: rows for name, rows in after.items() if name != "runs"} == {
        name: rows for name, rows in before.items() if name != "runs"
    }
    for path in sorted(tmp_path.glob("r*.jsonl.gz")):
        ingest_bundle(old, path)  # bundles that are stored again tell their nights
    assert answers(old) == answers(two_nights)
    old.dispose()


def test_a_reader_of_the_first_version_is_told_to_upgrade(two_nights, tmp_path):
    version_1(tmp_path / "old.db", two_nights).dispose()
    with pytest.raises(StoreError, match="db upgrade"):
        open_store(tmp_path / "old.db", write=False)


def test_going_down_to_the_first_version_forgets_the_nights_alone(two_nights, tmp_path):
    old = version_1(tmp_path / "old.db", two_nights)
    migrate.downgrade(two_nights, "0001")
    assert migrate.current(two_nights) == "0001"
    assert rows_of(two_nights) == rows_of(old)
    assert tables_in_words(two_nights) == tables_in_words(old)
    migrate.upgrade(two_nights)
    assert {run.night for run in list_runs(two_nights)} == {"r1", "r2", "r3"}
    old.dispose()


def test_a_failing_upgrade_leaves_nothing_behind(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'taken.db'}")
    with engine.begin() as conn:
        conn.execute(text("CREATE TABLE summaries (x INTEGER)"))  # the last table that the migration creates
    engine.dispose()
    script = (
        "import sys; from db.engine import _sqlite; from db import migrate; from pathlib import Path\n"
        "migrate.upgrade(_sqlite(Path(sys.argv[1]), write=True))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "taken.db")], capture_output=True)
    assert done.returncode != 0
    assert inspect(create_engine(f"sqlite:///{tmp_path / 'taken.db'}")).get_table_names() == ["summaries"]


def test_opening_from_another_folder_finds_the_migrations(tmp_path):
    script = "from db.engine import open_store; open_store('here.db', write=True).dispose()"
    environment = {key: value for key, value in os.environ.items() if key != "INDUCTOR_WATCH_DB"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environment)
    assert migrate.current(open_store(tmp_path / "here.db", write=False)) == migrate.head()
