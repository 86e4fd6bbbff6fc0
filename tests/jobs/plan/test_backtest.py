"""Measured nights against their own predictions: synthetic nights whose times are known, and the measured bundles."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Status
from jobs.plan.backtest import backtest, backtests, slack
from jobs.plan.cost import read_history
from jobs.plan.duplicate_programs import copy_for
from tests.factories import CUDAGRAPHS, at, cell, failing, header, passing, write_bundle

MEASURED = Path(__file__).resolve().parents[3] / "data" / "releases"


def spaced(starts, seconds, **changes):
    """Measurements of cells that start at these seconds and take `seconds` each."""
    options = {"details": {}, **changes}
    return [
        passing(cell(f"m{number}"), started_at=at(start / 60), wall_s=seconds, **options)
        for number, start in enumerate(starts)
    ]


def judged(folder, items, workers=1):
    """The backtest of a run of these measurements."""
    head = header("r", testbed={"device": "cuda", "workers": workers})
    return backtest(read_bundle(write_bundle(folder, head, items)))


DEAD = failing(cell("dead"), Status.CRASHED, environment_id=None, started_at=at(0.5), wall_s=10.0)
TUNED = spaced([0, 0, 20, 20, 40, 40], 20.0, details={"held_s": {"tune": 15.0}})
EVEN = spaced([0, 10, 20, 30], 10.0)


@pytest.mark.parametrize(
    ("items", "workers", "cells", "took_s", "predicted_s"),
    [
        pytest.param(spaced([0, 0, 10, 10, 20, 20], 10.0), 2, 6, 30.0, 30.0, id="no gaps"),
        pytest.param(spaced([0, 15, 30, 45], 10.0), 1, 4, 55.0, 40.0, id="gaps"),
        pytest.param(spaced([0, 15, 30, 45], 10.0), 2, 4, 55.0, 20.0, id="gaps, two workers"),
        pytest.param([*spaced([0, 10, 20], 10.0), DEAD], 1, 4, 40.0, 40.0, id="a cell that died counts"),
        pytest.param(TUNED, 2, 6, 60.0, 60.0, id="cells that tuned together share the device"),
        pytest.param(
            [*EVEN, *(copy_for(cell(item.cell.model, CUDAGRAPHS), item) for item in EVEN)],
            1,
            4,
            40.0,
            40.0,
            id="duplicates",
        ),
    ],
)
def test_a_night_is_compared_with_what_its_cells_predict(items, workers, cells, took_s, predicted_s, tmp_path):
    night = judged(tmp_path, items, workers)
    assert (night.workers, night.cells, night.took_s, night.predicted_s) == (workers, cells, took_s, predicted_s)
    assert slack([night]) == pytest.approx(took_s / predicted_s)


@pytest.mark.parametrize("starts", [[], [0], [0, 0, 0]])
def test_too_few_cells_to_keep_the_workers_busy_are_no_night(tmp_path, starts):
    assert judged(tmp_path, spaced(starts, 10.0), workers=2) is None
    assert slack([]) == 1.0


def test_a_prediction_of_the_measured_nights_is_not_far_off():
    nights = backtests(read_history(MEASURED))
    assert nights
    # They are lower bounds: no night is faster, and none of these took much longer.
    assert all(0.95 <= night.took_s / night.predicted_s < 1.2 for night in nights)
