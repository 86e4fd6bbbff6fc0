"""What the runs of a night took on, and runs that are nothing but promises, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from db.ingest import ingest_bundle
from db.queries.side_rows import drop_promises, taken_on
from db.schema import Planned, Run
from db.store_errors import StoreError
from tests.factories import cell, header, night, passing, write_bundle

A, B, C = (cell(model) for model in "abc")


def promise(store, folder, *cells, run_id="n-absent", **changes):
    ingest_bundle(store, write_bundle(folder, header(run_id, night="n", **changes), [], planned=cells))


def count(store, table):
    with store.connect() as conn:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_night_took_on_what_its_runs_planned_or_measured(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("one", night="n"), [passing(A)], planned=[A, B]))
    ingest_bundle(store, night(tmp_path, "other", cells=[C]))
    promise(store, tmp_path, C)
    found = taken_on(store, "n", besides="n-absent")
    assert [run.run_id for run in found.runs] == ["one"]
    assert found.cells == {A.cell_id, B.cell_id}
    assert taken_on(store, "n", besides="").cells == {A.cell_id, B.cell_id, C.cell_id}
    assert taken_on(store, "nowhere", besides="").runs == ()


def test_promises_that_no_longer_hold_go_with_all_that_hangs_on_them(store, tmp_path):
    promise(store, tmp_path, A, B)
    assert not drop_promises(store, "n-absent", unless=[B.cell_id, A.cell_id])
    assert count(store, Planned) == 2
    assert drop_promises(store, "n-absent", unless=[A.cell_id])
    assert (count(store, Run), count(store, Planned)) == (0, 0)
    assert not drop_promises(store, "n-absent", unless=[])


def test_a_run_with_measurements_is_never_dropped(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "n-absent", cells=[A]))
    with pytest.raises(StoreError, match="has measurements"):
        drop_promises(store, "n-absent", unless=[])
    assert count(store, Run) == 1
