"""`db check`: a sound database has no findings, and every way of being unsound has one."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text

from db.ingest import ingest_bundle
from db.maintenance.consistency import check_bundles, check_store, damage_of
from tests.factories import cell, failing, header, matrix, new_store, night, passing, write_bundle


@pytest.fixture
def filled(store, tmp_path):
    """Two runs, with failures, replicates, cells that are missing, texts of every kind."""
    cells = matrix(["bert", "t5"])
    odd = failing(cell("odd\x00\ud800 \N{ROCKET}"), log_tail="a\x00b")
    made = [passing(cells[0]), passing(cells[0], replicate=1), failing(cells[1]), odd]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), made, planned=cells))
    ingest_bundle(store, night(tmp_path, "r2", minutes=10))
    return store


#: What is read out of the rows is the same code on both; that a sound server has no findings is asked of both.
IN_A_FILE = pytest.mark.parametrize("location", ["sqlite"], indirect=True)


def test_a_database_agrees_with_itself_and_with_its_bundles(filled, tmp_path):
    assert check_store(filled) == []
    told = check_bundles(filled, sorted(tmp_path.glob("*.jsonl*")))
    assert (told.findings, told.untold, told.damage) == ((), (), ())
    assert (told.runs, told.measurements, told.thinned) == (2, 13, 0)


@IN_A_FILE
@pytest.mark.parametrize(
    ("statement", "kind", "said"),
    [
        # What contradicts itself.
        ("UPDATE runs SET measured = 5 WHERE run_id = 'r1'", "different", "says 5 measured: its rows 3"),
        ("UPDATE measurements SET compiled_ms = 2 * compiled_ms", "different", "the summary of"),
        ("UPDATE meta SET value = 'many'", "broken", "no number"),
        ("UPDATE samples SET number_format = NULL WHERE metric = 'eager_ms'", "broken", "eager_ms cannot be read"),
        ("UPDATE samples SET count = 3 WHERE metric = 'eager_ms'", "broken", "eager_ms cannot be read"),
        # What differs from the bundles.
        ("DELETE FROM runs WHERE run_id = 'r1'", "missing", "run r1 is not in the database"),
        ("DELETE FROM measurements WHERE replicate = 1", "missing", "(replicate 1): measurement is not in"),
        ("DELETE FROM samples WHERE metric = 'eager_ms'", "missing", "(eager_ms): samples is not in the database"),
        ("UPDATE samples SET data = 'x' WHERE metric = 'eager_ms'", "different", "samples differs in values"),
        ("DELETE FROM planned", "missing", "is not in the database"),
        ("UPDATE runs SET branch = 'other'", "different", "its branch is other, bundles say main"),
        ("UPDATE evidence SET details = log_tail WHERE details IS NULL", "different", "evidence differs in details"),
        ("UPDATE measurements SET compiled_ms = NULL", "different", "differs in compiled_ms"),
        ("UPDATE measurements SET eager_ms = eager_ms * 0.999999999", "different", "differs in eager_ms"),
    ],
)
def test_what_contradicts_itself_or_the_bundles_is_found(filled, tmp_path, statement, kind, said):
    with filled.begin() as conn:
        conn.execute(text(statement))

    def findings():
        yield from check_store(filled)
        yield from check_bundles(filled, sorted(tmp_path.glob("*.jsonl*"))).findings

    assert any(item.kind == kind and said in item.text for item in findings())


def test_rows_that_refer_to_nothing_are_found_in_a_file(full, opened):
    with closing(sqlite3.connect(full)) as other:  # another program, that minds no references
        other.execute("DELETE FROM environments")
        other.commit()
    assert any("refer to no row of environments" in item.text for item in check_store(opened(full)))


def test_what_no_bundle_tells_is_extra_within_a_run_and_untold_as_a_run(filled, tmp_path):
    short = write_bundle(tmp_path / "short", header("r1"), [passing(cell())])
    told = check_bundles(filled, [short])
    assert told.untold == ("r2",)
    assert any(item.kind == "extra" and "is in no bundle" in item.text for item in told.findings)


# A damaged file is told from an error of ours


@pytest.fixture
def full(tmp_path):
    path = tmp_path / "x.db"
    engine = new_store(path)
    ingest_bundle(engine, night(tmp_path, "r1"))
    engine.dispose()
    return path


def overwrite(path, table):
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
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
