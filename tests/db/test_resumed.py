"""A run that was resumed: the last outcome of a cell counts, whatever state of the bundle was stored before."""

from __future__ import annotations

import shutil

import pytest

from collector.bundle import BundleWriter
from collector.vocabulary import Status
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.factories import at, cell, failing, header, passing, write_bundle

CELLS = [cell("bert"), cell("gpt2"), cell("t5")]


@pytest.fixture
def states(tmp_path):
    """One bundle as it stood: out of time after two of three cells, open again, one measured, one retried, closed."""
    found = []

    def keep(path):
        kept = tmp_path / str(len(found)) / path.name
        kept.parent.mkdir()
        found.append(shutil.copy(path, kept))

    first = [failing(CELLS[0], Status.CRASHED, minutes=1), passing(CELLS[1], minutes=2)]
    path = write_bundle(tmp_path / "runs", header("r1"), first, planned=CELLS)
    keep(path)
    writer, _ = BundleWriter.reopen(path, at(700))
    keep(writer.path)
    writer.measurement(passing(CELLS[2], minutes=701))
    keep(writer.path)
    writer.measurement(passing(CELLS[0], minutes=702))
    keep(writer.path)
    keep(writer.close(at(710)))
    return found


def state_of(store):
    (run,) = queries.list_runs(store)
    return run.attempt, run.finished_at is not None, run.statuses, run.missing


def test_every_state_is_stored_as_it_stands(store, states):
    seen, reports = [], []
    for path in states:
        reports.append(ingest_bundle(store, path))
        seen.append(state_of(store))
    assert seen == [
        (1, True, {"crashed": 1, "pass": 1}, 1),
        (2, False, {"crashed": 1, "pass": 1}, 1),
        (2, False, {"crashed": 1, "pass": 2}, 0),
        (2, False, {"pass": 3}, 0),
        (2, True, {"pass": 3}, 0),
    ]
    assert [(report.new, report.updated) for report in reports] == [(2, 0), (0, 0), (1, 0), (0, 1), (0, 0)]
    assert all(report.damage == () for report in reports)
    assert all(report.changed for report in reports)
