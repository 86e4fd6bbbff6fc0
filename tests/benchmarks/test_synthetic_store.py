"""The store that the benchmarks fill: it says that it is synthetic, and answers as if its nights had been ingested."""

import pytest

from benchmarks.synthetic_nights import WORD, Shape, World
from benchmarks.synthetic_store import fill
from collector.bundle import read_bundle
from collector.metrics import METRICS
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.db.answers import answers
from tests.factories import new_store

SMALL = Shape(commits=4, models=6, configs=3, sampled=0)
#: Enough cells that some fail and some are missing.
SEED = 3


@pytest.fixture
def two_stores(tmp_path):
    engines = [new_store(tmp_path / f"{name}.db") for name in ("filled", "ingested")]
    yield engines
    for engine in engines:
        engine.dispose()


def test_a_filled_store_answers_as_one_that_ingested_the_same_nights(two_stores, tmp_path):
    filled, ingested = two_stores
    world = fill(filled, SMALL, SEED)
    for number in range(SMALL.commits):
        report = ingest_bundle(ingested, world.night(number).write(tmp_path, samples=False))
        assert report.damage == ()
    assert answers(filled) == answers(ingested)
    assert queries.revision(filled) == queries.revision(ingested) == SMALL.commits


def test_a_filled_store_is_what_its_bundles_say_already(two_stores, tmp_path):
    filled, _ = two_stores
    world = fill(filled, SMALL, SEED)
    report = ingest_bundle(filled, world.night(1).write(tmp_path, samples=False))
    assert (report.new, report.updated, report.changed) == (0, 0, False)


def test_the_same_seed_gives_the_same_night_whatever_was_made_before(tmp_path):
    one, other = World(SMALL, SEED), World(SMALL, SEED)
    for number in range(3):
        one.night(number)
    first, second = (list(world.night(3).measurements(samples=True)) for world in (one, other))
    assert first == second
    assert first != list(World(SMALL, SEED + 1).night(3).measurements(samples=True))


def test_it_says_synthetic_wherever_it_shows(two_stores):
    filled, _ = two_stores
    fill(filled, SMALL, SEED)
    runs, axes = queries.list_runs(filled), queries.axes(filled)
    shown = [text for run in runs for text in (run.label, run.branch, run.commit_title, run.run_id, run.testbed["gpu"])]
    shown += [model.name for model in axes.models] + [run.repo for run in queries.list_runs(filled)]
    assert [text for text in shown if WORD not in str(text)] == []


def test_a_night_has_passes_with_every_metric_failures_with_texts_and_missing_cells():
    night = World(Shape(commits=10, models=150)).night(9)
    found = list(night.measurements(samples=True))
    failed = [measurement for measurement in found if measurement.failure]
    assert 0.01 < len(failed) / len(found) < 0.07
    assert 0 < len(night.planned) - len(found) < 20
    # All but the count that most versions of torch do not give, and what is measured only where a night is asked for it.
    unmeasured = {"cudagraph_partitions", "compile_warm_s", "compile_instructions"}
    assert {name for item in found for name in item.metrics} == METRICS.keys() - unmeasured
    assert all(failure.failure.message for failure in failed)
    assert len({measurement.cell.suite for measurement in found}) == 3


def test_the_newest_nights_have_samples_and_evidence(two_stores):
    filled, _ = two_stores
    world = fill(filled, Shape(commits=3, models=4, configs=2, sampled=1), SEED)
    last = next(item for item in world.night(2).measurements(samples=True) if item.samples)
    stored = queries.samples(filled, "synthetic-0002", last.cell.cell_id)
    assert {name: values.tolist() for name, values in stored.items()} == last.samples
    assert queries.samples(filled, "synthetic-0001", last.cell.cell_id) == {}


def test_its_bundles_say_synthetic_too(tmp_path):
    header = read_bundle(World(SMALL, SEED).night(0).write(tmp_path, samples=False)).header
    assert (header.label, header.branch, header.repo) == (WORD, WORD, "synthetic/repository")


def test_a_store_that_holds_runs_is_not_filled(two_stores):
    filled, _ = two_stores
    fill(filled, SMALL, SEED)
    with pytest.raises(ValueError, match="holds runs"):
        fill(filled, SMALL, SEED)
