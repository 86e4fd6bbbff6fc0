"""What a run expects is what it planned and has not measured, and what it measured."""

from sqlalchemy import func, select

from db.ingest import ingest_bundle
from db.queries.cells import list_runs
from db.schema import Planned
from tests.db.answers import answers
from tests.factories import cell, header, matrix, new_store, passing, write_bundle


def planned(engine):
    with engine.connect() as conn:
        return conn.execute(select(func.count()).select_from(Planned)).scalar_one()


def bundle(folder, lines, closed):
    return write_bundle(folder, header("r1"), lines, planned=matrix(), closed=closed)


def test_a_planned_cell_is_kept_until_its_measurement_comes(store, tmp_path):
    lines = [passing(item) for item in matrix()]
    states = [bundle(tmp_path / str(count), lines[:count], closed=count == 9) for count in (0, 4, 9)]
    counts = []
    for path in states:
        ingest_bundle(store, path)
        (run,) = list_runs(store)
        counts.append((planned(store), run.planned, run.measured))
    assert counts == [(9, 9, 0), (5, 9, 4), (0, 9, 9)]


def test_an_older_state_of_a_bundle_plans_nothing_again(store, tmp_path):
    lines = [passing(item) for item in matrix()]
    whole, cut = bundle(tmp_path / "whole", lines, True), bundle(tmp_path / "cut", lines[:4], False)
    ingest_bundle(store, whole)
    before = answers(store)
    assert not ingest_bundle(store, cut).changed
    assert (planned(store), answers(store) == before) == (0, True)


def test_plan_and_measurements_in_any_order_end_the_same(tmp_path):
    lines = [passing(item) for item in [*matrix(), cell("unplanned")]]
    paths = [bundle(tmp_path / name, part, False) for name, part in (("a", lines[:3]), ("b", lines[2:]))]
    found = []
    for name, order in (("one.db", paths), ("other.db", paths[::-1])):
        engine = new_store(tmp_path / name)
        for path in order:
            ingest_bundle(engine, path)
        found.append((planned(engine), answers(engine)))
        engine.dispose()
    assert found[0] == found[1]
    assert found[0][0] == 0
