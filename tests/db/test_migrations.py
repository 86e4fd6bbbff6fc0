import os
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Double, MetaData, Table, create_engine, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError

from db.base import VERSIONS, Base
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.maintenance import migrate
from db.maintenance.check import check_store
from db.migrations.versions import v0005_metrics, v0006_tags
from db.packing.packed import metrics_of_run
from db.runs import list_runs
from db.schema import Branch, Run
from tests.db.answers import answers
from tests.factories import cell, new_store, night, passing


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


def shape(engine):
    """What every database can tell of its tables: columns, keys, indexes."""
    with engine.connect() as conn:
        look = inspect(conn)
        return {
            name: (
                sorted((str(c["name"]), str(c["type"]), c["nullable"], c["default"]) for c in look.get_columns(name)),
                look.get_pk_constraint(name)["constrained_columns"],
                sorted(repr(sorted(key.items())) for key in look.get_foreign_keys(name)),
                sorted((index["name"], index["column_names"]) for index in look.get_indexes(name)),
                sorted(key["name"] for key in look.get_unique_constraints(name)),
            )
            for name in look.get_table_names()
        }


def test_upgraded_schema_is_the_declared_schema(store):
    with store.connect() as conn:
        found = compare_metadata(MigrationContext.configure(conn, opts={"compare_type": True}), Base.metadata)
    assert found == []


def test_upgraded_tables_are_word_for_word_the_declared_ones(file_store, tmp_path):
    declared = create_engine(f"sqlite:///{tmp_path / 'declared.db'}")
    Base.metadata.create_all(declared)
    # Alembic does not compare what is said to SQLite alone, such as WITHOUT ROWID.
    assert tables_in_words(file_store) == tables_in_words(declared)
    assert any("WITHOUT ROWID" in line for line in tables_in_words(file_store)["measurements"])
    assert "night TEXT DEFAULT '' NOT NULL" in tables_in_words(file_store)["runs"]


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
    """Every row of every table, by the names of its columns."""
    with engine.connect() as conn:
        return {
            name: sorted(repr(sorted(row.items())) for row in conn.execute(text(f'SELECT * FROM "{name}"')).mappings())  # noqa: S608
            for name in inspect(conn).get_table_names()
            if name != "alembic_version"
        }


def metrics_of(conn, row):
    """The metrics of a row of `measurements` that were columns of their own before schema 0005, by name."""
    return metrics_of_run(conn, row["run"], v0005_metrics._ALL)[row["cell"], row["replicate"]]


def before_tags(data):
    """A row of `packed_metrics` as versions before 0006 wrote it."""
    return v0006_tags._without(data) if data[2] > v0006_tags._BEFORE else data


def at_version(engine, version, full):
    """Makes the database one of a released version, by its own migrations, with all of `full` that it can hold."""
    migrate.downgrade(engine, "base")
    migrate.upgrade(engine, version)
    assert migrate.current(engine) == version
    with engine.begin() as conn, full.connect() as source:
        conn.execute(text("DELETE FROM meta"))
        known = inspect(conn).get_table_names()
        for table in (table for table in Base.metadata.sorted_tables if table.name in known):
            columns = [
                table.c[name] for column in inspect(conn).get_columns(table.name) if (name := column["name"]) in table.c
            ]
            # Without its table a column has no default that this version did not know.
            rows = [dict(row) for row in source.execute(select(*columns)).mappings()]
            if table.name == "measurements" and version < "0005":
                columns += [Column(name, Double) for name in v0005_metrics._ALL]
                rows = [row | metrics_of(source, row) for row in rows]
            if table.name == "packed_metrics" and version < "0006":
                rows = [row | {"data": before_tags(row["data"])} for row in rows]
            names = [column.name for column in columns]
            bare = Table(table.name, MetaData(), *(Column(c.name, c.type) for c in columns))
            if rows:
                conn.execute(insert(bare), [{name: row[name] for name in names} for row in rows])
            if "id" in names and conn.dialect.name == "postgresql":
                newest = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), coalesce(max(id), 1))"
                conn.execute(text(f'{newest} FROM "{table.name}"'))
    return engine


@pytest.fixture
def two_nights(store, tmp_path):
    """Two runs of one night, and one that is a night of its own."""
    ingest_bundle(store, night(tmp_path, "r1", night="n"))
    ingest_bundle(store, night(tmp_path, "r2", night="n", minutes=1, cells=[cell("other")]))
    ingest_bundle(store, night(tmp_path, "r3", minutes=60, make=capped))
    return store


def capped(which):
    """Measured on a GPU that was held back while it ran one of the models; of another nobody looked."""
    held_by = {"t5": ["power_cap", "software_thermal"], "bert": ["idle"]}.get(which.model)
    if held_by is None:
        return passing(which, minutes=61)
    return passing(which, minutes=61, details={"surroundings": {"after": {"clocks_held_by": held_by}}})


def held_back(engine):
    """By run, cell and replicate what the store says of it, None where nobody looked."""
    with engine.connect() as conn:
        runs = dict(conn.execute(select(Run.run_id, Run.id)).all())
        return {name: metrics_of_run(conn, number, ("throttled",)) for name, number in runs.items()}


@pytest.fixture
def old_location(request, location, tmp_path):
    """Where a second database of the same kind is."""
    if location.startswith("postgresql"):
        server = request.getfixturevalue("postgres")
        url = server.migrated()
        yield url
        server.give_back(url)
    else:
        new_store(tmp_path / "old.db").dispose()
        yield str(tmp_path / "old.db")


@pytest.fixture(params=VERSIONS[:-1])
def old(request, old_location, two_nights):
    """A database of every released version before this one, with the runs of `two_nights`."""
    engine = at_version(open_store(old_location, write=True), request.param, two_nights)
    yield engine
    engine.dispose()


def within(engine, older):
    """Those tables and columns of a database that `older` has too; metrics as the columns they were."""
    found, rows = {}, rows_of(engine)
    with engine.connect() as conn:
        query = select(Base.metadata.tables["measurements"])
        measured = [dict(row) for row in conn.execute(query).mappings()]
        rows["measurements"] = [repr(sorted((row | metrics_of(conn, row)).items())) for row in measured]
    packed = [dict(literal_row(line)) for line in rows["packed_metrics"]]
    rows["packed_metrics"] = [repr(sorted((row | {"data": before_tags(row["data"])}).items())) for row in packed]
    for name, lines in older.items():
        columns = {column for line in lines for column, _ in literal_row(line)}
        found[name] = sorted(repr([item for item in literal_row(line) if item[0] in columns]) for line in rows[name])
    return found


def literal_row(line):
    return eval(line, {"nan": float("nan"), "memoryview": bytes})  # noqa: S307 -- what `rows_of` wrote


def test_every_released_version_comes_up_with_all_that_it_held(old, old_location, two_nights, tmp_path):
    before = rows_of(old)
    assert len(before["measurements"]) == 19
    old.dispose()

    upgraded = open_store(old_location, write=True)

    assert migrate.current(upgraded) == migrate.head()
    assert shape(upgraded) == shape(two_nights)
    assert within(upgraded, before) == before
    assert [item for item in check_store(upgraded) if "packed" in item.text] == []
    assert held_back(upgraded) == held_back(two_nights)
    assert sorted(str(row["throttled"]) for row in held_back(upgraded)["r3"].values()) == sorted(
        3 * ["0.0"] + 3 * ["5.0"] + 3 * ["None"]
    )
    for path in sorted(tmp_path.glob("r*.jsonl.gz")):
        ingest_bundle(upgraded, path)  # what older versions could not keep, the bundles tell
    assert answers(upgraded) == answers(two_nights)
    upgraded.dispose()


def test_going_down_forgets_what_the_older_version_cannot_hold_and_nothing_else(old, two_nights, tmp_path):
    version = migrate.current(old)
    migrate.downgrade(two_nights, version)
    assert migrate.current(two_nights) == version
    assert rows_of(two_nights) == rows_of(old)
    assert shape(two_nights) == shape(old)
    if two_nights.dialect.name == "sqlite":
        assert tables_in_words(two_nights) == tables_in_words(old)
    migrate.upgrade(two_nights)
    migrate.upgrade(old)
    assert answers(two_nights) == answers(old)
    assert check_store(two_nights) == []
    assert ingest_bundle(two_nights, night(tmp_path, "r4", minutes=90)).new == 9


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_runs_of_the_first_version_become_nights_of_their_own(two_nights, tmp_path):
    at_version(two_nights, "0001", copy_of(two_nights, tmp_path))
    migrate.upgrade(two_nights)
    assert [(run.run_id, run.night) for run in list_runs(two_nights)] == [("r3", "r3"), ("r2", "r2"), ("r1", "r1")]


def copy_of(engine, tmp_path):
    found = new_store(tmp_path / "copy.db")
    for path in sorted(tmp_path.glob("r*.jsonl.gz")):
        ingest_bundle(found, path)
    return found


def test_branches_with_runs_are_known_after_coming_up(old):
    migrate.upgrade(old)
    with old.connect() as conn:
        assert conn.execute(select(Branch.repo, Branch.name, Branch.start)).all() == [("pytorch/pytorch", "main", None)]


def test_a_reader_of_an_older_version_is_told_to_upgrade(old, old_location):
    with pytest.raises(StoreError, match="db upgrade"):
        open_store(old_location, write=False)


def test_a_failing_upgrade_leaves_nothing_behind(store):
    migrate.downgrade(store, "base")
    with store.begin() as conn:
        conn.execute(text("CREATE TABLE notes (x INTEGER)"))  # the last table that the last migration creates
    with pytest.raises(DBAPIError):
        migrate.upgrade(store)
    assert sorted(inspect(store).get_table_names()) == ["alembic_version", "notes"]
    assert migrate.current(store) is None


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
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, env=environment)
    assert migrate.current(open_store(tmp_path / "here.db", write=False)) == migrate.head()
