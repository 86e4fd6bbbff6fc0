"""The names of cells are read once, and never from what was not committed."""

import pytest

from db.connecting import connected
from db.ingest import ingest_bundle
from db.queries import cell_names as module
from db.queries.cell_names import cell_names
from db.queries.cells import resolve_side, side_rows
from db.queries.filters import CellFilter
from tests.factories import cell, header, matrix, night, passing, write_bundle


@pytest.fixture
def reads(monkeypatch):
    """Counts how often the names were read from the database."""
    found, read = [], module._read
    monkeypatch.setattr(module, "_read", lambda conn: found.append(conn) or read(conn))
    return found


def models(engine, run):
    return sorted(set(side_rows(engine, resolve_side(engine, run))["model"]))


def test_names_are_read_again_only_after_an_ingest(store, tmp_path, reads):
    ingest_bundle(store, night(tmp_path, "r1"))
    assert [models(store, "r1") for _ in range(3)] == [["bert", "gpt2", "t5"]] * 3
    assert len(reads) == 1
    ingest_bundle(store, night(tmp_path, "r2", minutes=60, cells=[cell("late")]))
    assert models(store, "r2") == ["late"]
    assert len(reads) == 2


def test_what_is_rolled_back_leaves_no_name_behind(store, tmp_path):
    with store.connect() as conn, conn.begin() as transaction:
        ingest_bundle(conn, night(tmp_path, "r1", cells=[cell("never"), cell("stays")]))
        assert models(conn, "r1") == ["never", "stays"]
        transaction.rollback()
    # The numbers that were given back, in part for the same cells, and the same revision.
    ingest_bundle(store, night(tmp_path, "r2", cells=[cell("instead"), cell("stays")]))
    assert models(store, "r2") == ["instead", "stays"]


def test_places_follow_the_names_and_keys_lead_there(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), [passing(item) for item in reversed(matrix())]))
    with connected(store) as conn:
        names = cell_names(conn)
    assert list(names.spelled) == sorted(str(item) for item in matrix())
    assert names.at(names.keys.tolist()).tolist() == list(range(9))
    assert not names.has(int(names.keys.max()) + 1)
    assert names.chosen(CellFilter(models=("t5",), configs=("default",))).sum() == 1


def test_the_cells_of_a_model_get_numbers_side_by_side(store, tmp_path):
    by_config = sorted(matrix(), key=lambda item: (item.config.name, item.model))
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), [passing(item) for item in by_config]))
    with connected(store) as conn:
        names = cell_names(conn)
        keys = names.keys[names.chosen(CellFilter(models=("gpt2",)))]
    assert keys.max() - keys.min() == len(keys) - 1 == 2
