"""The store that the benchmarks fill says that it is synthetic, and no other store is filled."""

import pytest

from benchmarks.synthetic_nights import WORD, Shape, open_filled
from db.ingest import ingest_bundle
from tests.db import reads as queries
from tests.factories import cell as real_cell
from tests.factories import header, new_store, passing, write_bundle

SMALL = Shape(commits=3, models=6, configs=3, sampled=1)
#: Enough cells that some fail and some are missing.
SEED = 3


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    engine = open_filled(tmp_path_factory.mktemp("synthetic") / "filled.db", SMALL, SEED)
    yield engine
    engine.dispose()


def test_it_says_synthetic_wherever_it_shows(filled):
    runs, axes = queries.list_runs(filled), queries.axes(filled)
    assert len(runs) == SMALL.commits
    shown = [text for run in runs for text in (run.label, run.branch, run.commit_title, run.run_id, run.testbed["gpu"])]
    shown += [model.name for model in axes.models] + [run.repo for run in runs]
    assert [text for text in shown if WORD not in str(text)] == []


def test_a_store_that_holds_measured_runs_is_not_filled(tmp_path):
    engine = new_store(tmp_path / "mine.db")
    ingest_bundle(engine, write_bundle(tmp_path, header("mine"), [passing(real_cell())]))
    engine.dispose()
    with pytest.raises(SystemExit, match="not synthetic"):
        open_filled(tmp_path / "mine.db", SMALL)
