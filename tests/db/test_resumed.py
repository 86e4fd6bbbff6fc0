"""A run that was resumed: the last outcome of a cell counts, whatever state of the bundle was stored before."""

from __future__ import annotations

import itertools
import shutil

import pytest

from collector.bundle import BundleWriter
from collector.vocabulary import Status
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.db.answers import answers
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


def test_a_state_that_is_stored_again_changes_nothing(store, states):
    for path in states:
        ingest_bundle(store, path)
        before, revision = answers(store), queries.revision(store)
        assert not ingest_bundle(store, path).changed
        assert (answers(store), queries.revision(store)) == (before, revision)


@pytest.mark.parametrize("fresh", ["sqlite"], indirect=True)  # a server is asked in test_orders.py
def test_the_states_give_the_same_answers_in_any_order(fresh, states):
    # The two states of most lines differ in nothing but the file that they are read from.
    found = []
    for order in itertools.permutations([states[0], states[1], states[2], states[4]]):
        store = fresh()
        for path in order:
            ingest_bundle(store, path)
        found.append(answers(store))
        store.dispose()
    assert all(item == found[0] for item in found)
    assert found[0]["runs"][0].statuses == {"pass": 3}
