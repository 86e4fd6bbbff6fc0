"""A damaged database file is told from an error of ours."""

import sqlite3

import pytest

from db.ingest import ingest_bundle
from db.maintenance.consistency import damage_of
from tests.chaos.world import cli
from tests.factories import new_store, night


@pytest.fixture
def full(tmp_path):
    path = tmp_path / "x.db"
    engine = new_store(path)
    ingest_bundle(engine, night(tmp_path, "r1"))
    engine.dispose()
    return path


def overwrite(path, table):
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    data[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(data)


def test_a_page_of_noise_is_told_in_one_line_with_advice(full, tmp_path):
    for sound in (full, tmp_path / "none.db", "postgresql://nobody@localhost/x"):
        assert damage_of(sound) is None
    overwrite(full, "runs")
    told = str(damage_of(full))
    assert "is damaged" in told
    assert "ingest the bundles again" in told
    assert told.isprintable()


def test_a_value_of_another_type_in_a_damaged_file_ends_in_one_line(full, tmp_path):
    overwrite(full, "samples")
    connection = sqlite3.connect(full)
    connection.execute("UPDATE runs SET started_at = 'never'")
    connection.commit()
    connection.close()
    done = cli(tmp_path, "db", "info", "--db", str(full))
    assert done.code
    done.check_one_line(4)
    assert "is damaged" in done.err
