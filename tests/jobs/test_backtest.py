"""Measured nights against their own predictions: synthetic nights whose times are known, and the measured bundles."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Status
from jobs.plan.cost import read_history
from jobs.plan.duplicate_programs import copy_for
from jobs.regressions.backtest import backtest, backtests, slack
from tests.factories import CUDAGRAPHS, at, cell, failing, header, passing, write_bundle

MEASURED = Path(__file__).resolve().parents[2] / "data" / "releases"


def night(folder, starts, seconds, **changes):
    """A run whose cells start at these seconds and take `seconds` each."""
    items = [
        passing(cell(f"m{number}"), started_at=at(start / 60), wall_s=seconds, details={})
        for number, start in enumerate(starts)
    ]
    return read_bundle(write_bundle(folder, header("r"), items, **changes))


def test_a_night_without_gaps_took_what_it_predicts(tmp_path):
    (found,) = backtest(night(tmp_path, [0, 0, 10, 10, 20, 20], 10.0))
    assert (found.workers, found.cells, found.took_s, found.predicted_s) == (2, 6, 30.0, 30.0)
    assert slack([found]) == 1.0


def test_gaps_between_cells_are_the_slack(tmp_path):
    (found,) = backtest(night(tmp_path, [0, 15, 30, 45], 10.0))
    assert (found.workers, found.took_s, found.predicted_s) == (1, 55.0, 40.0)
    assert slack([found]) == pytest.approx(1.375)


def test_what_the_cells_were_told_about_workers_counts(tmp_path):
    told = {"workers": 2, "torch": {}}
    (found,) = backtest(night(tmp_path, [0, 15, 30, 45], 10.0, environment=told))
    assert (found.workers, found.predicted_s) == (2, 20.0)


def test_each_gpu_is_a_night_of_its_own(tmp_path):
    items, environments = [], {}
    for gpu in (3, 5):
        for number in range(4):
            which = cell(f"g{gpu}m{number}")
            items.append(passing(which, started_at=at(number / 6), wall_s=10.0, details={}, environment_id=f"e{gpu}"))
        environments[f"e{gpu}"] = {"gpu_index": gpu, "workers": 1}
    contents = read_bundle(write_bundle(tmp_path, header("r"), items))
    contents.environments = environments
    assert [(found.gpu, found.gpus, found.took_s) for found in backtest(contents)] == [(3, 2, 40.0), (5, 2, 40.0)]


def test_a_night_whose_other_gpus_have_bundles_of_their_own_knows_how_many_there_were(tmp_path):
    told = {"gpu_index": 1, "gpus": 4, "workers": 1}
    (found,) = backtest(night(tmp_path, [0, 10, 20, 30], 10.0, environment=told))
    assert (found.gpu, found.gpus) == (1, 4)


def test_a_cell_that_died_before_it_could_say_where_belongs_to_the_only_gpu(tmp_path):
    items = [passing(cell(f"m{n}"), started_at=at(n / 6), wall_s=10.0, details={}) for n in range(3)]
    items.append(failing(cell("dead"), Status.CRASHED, environment_id=None, started_at=at(0.5), wall_s=10.0))
    path = write_bundle(tmp_path, header("r"), items, environment={"gpu_index": 4, "workers": 1})
    assert [(found.gpu, found.gpus, found.cells) for found in backtest(read_bundle(path))] == [(4, 1, 4)]


def test_cells_that_tuned_together_do_not_count_the_device_twice(tmp_path):
    items = [
        passing(cell(f"m{n}"), started_at=at(n // 2 * 20 / 60), wall_s=20.0, details={"held_s": {"tune": 15.0}})
        for n in range(6)
    ]
    (found,) = backtest(read_bundle(write_bundle(tmp_path, header("r"), items)))
    assert (found.took_s, found.predicted_s) == (60.0, 60.0)


def test_what_was_taken_over_from_another_cell_took_no_time(tmp_path):
    items = [passing(cell(f"m{n}"), started_at=at(n / 6), wall_s=10.0, details={}) for n in range(4)]
    items += [copy_for(cell(item.cell.model, CUDAGRAPHS), item) for item in items]
    (found,) = backtest(read_bundle(write_bundle(tmp_path, header("r"), items)))
    assert (found.cells, found.workers, found.took_s, found.predicted_s) == (4, 1, 40.0, 40.0)


@pytest.mark.parametrize("starts", [[], [0], [0, 0, 0]])
def test_too_few_cells_to_keep_the_workers_busy_tell_nothing(tmp_path, starts):
    assert backtest(night(tmp_path, starts, 10.0)) == []


def test_no_night_is_no_slack():
    assert slack([]) == 1.0


def test_a_prediction_of_the_measured_nights_is_not_far_off():
    nights = backtests(read_history(MEASURED))
    assert nights
    # They are lower bounds: no night is faster, and none of these took much longer.
    assert all(0.95 <= found.took_s / found.predicted_s < 1.2 for found in nights)
