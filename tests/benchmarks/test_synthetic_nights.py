"""The store that the benchmarks fill says that it is synthetic, and the same seed gives the same nights."""

import pytest

from benchmarks.synthetic_nights import WORD, Shape, World, open_filled
from collector.metrics import METRICS
from db.ingest import ingest_bundle
from db.queries import cells as queries
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


def test_the_same_seed_gives_the_same_night_whatever_was_made_before():
    one, other = World(SMALL, SEED), World(SMALL, SEED)
    for number in range(3):
        one.night(number)
    first, second = (list(world.night(3).measurements(samples=True)) for world in (one, other))
    assert first == second
    assert first != list(World(SMALL, SEED + 1).night(3).measurements(samples=True))


def test_it_says_synthetic_wherever_it_shows(filled):
    runs, axes = queries.list_runs(filled), queries.axes(filled)
    assert len(runs) == SMALL.commits
    shown = [text for run in runs for text in (run.label, run.branch, run.commit_title, run.run_id, run.testbed["gpu"])]
    shown += [model.name for model in axes.models] + [run.repo for run in runs]
    assert [text for text in shown if WORD not in str(text)] == []


def test_a_night_has_passes_with_every_metric_failures_with_texts_and_missing_cells():
    night = World(Shape(commits=10, models=150)).night(9)
    found = list(night.measurements(samples=True))
    failed = [measurement for measurement in found if measurement.failure]
    assert 0.01 < len(failed) / len(found) < 0.07
    assert 0 < len(night.planned) - len(found) < 20
    # All but the count that most versions of torch do not give, and what is measured only where a night is asked for it.
    unmeasured = {"cudagraph_partitions", "compile_warm_s", "compile_instructions", "over_static", "tuning_s"}
    unmeasured |= {"cudagraph_launches", "kernels_outside_graphs", "cudagraph_share"}
    unmeasured |= {"yardstick_gpu_ms", "yardstick_copy_ms", "yardstick_host_ms"}
    assert {name for item in found for name in item.metrics} == METRICS.keys() - unmeasured
    assert all(failure.failure.message for failure in failed)
    assert len({measurement.cell.suite for measurement in found}) == 3


def test_the_newest_nights_have_samples_and_evidence(filled):
    last = next(item for item in World(SMALL, SEED).night(2).measurements(samples=True) if item.samples)
    stored = queries.samples(filled, "synthetic-0002", last.cell.cell_id)
    assert {name: values.tolist() for name, values in stored.items()} == last.samples
    assert queries.samples(filled, "synthetic-0001", last.cell.cell_id) == {}


def test_a_store_that_holds_measured_runs_is_not_filled(tmp_path):
    engine = new_store(tmp_path / "mine.db")
    ingest_bundle(engine, write_bundle(tmp_path, header("mine"), [passing(real_cell())]))
    engine.dispose()
    with pytest.raises(SystemExit, match="not synthetic"):
        open_filled(tmp_path / "mine.db", SMALL)
