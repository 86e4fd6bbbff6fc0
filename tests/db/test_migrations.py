import os
import subprocess
import sys

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from db import migrate
from db.base import VERSIONS, Base
from db.engine import open_store
from db.ingest import ingest_bundle
from tests.db.answers import answers
from tests.factories import night


def tables_in_words(engine):
    query = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%' ORDER BY name")
    with engine.connect() as conn:
        return {
            name: sorted(" ".join(line.split()).rstrip(",") for line in sql.replace("(\n", "\n").splitlines())
            for name, sql in conn.execute(query)
        }


def test_upgraded_schema_is_the_declared_schema(store):
    with store.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), Base.metadata) == []


def test_upgraded_tables_are_word_for_word_the_declared_ones(store, tmp_path):
    declared = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    Base.metadata.create_all(declared)
    # Alembic does not compare what is said to SQLite alone, such as WITHOUT ROWID.
    assert tables_in_words(store) == tables_in_words(declared)
    assert any("WITHOUT ROWID" in line for line in tables_in_words(store)["measurements"])


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
