"""Cells that ran while the GPU was held back: their clock moves eager and compiled device time, which no commit does."""

import math

import numpy as np
import pytest

from analysis.reports.facts import evidence_of
from tests.analysis.compare import judging
from tests.factories import cell, passing

MODELS = [f"model{number:02}" for number in range(24)]
#: A model that draws so much power, one of which nothing is said, and how far their clock moves their eager times a night.
HOT, FREE, CLOCK = MODELS[0], MODELS[1], 0.015


def make_run(store, folder, number, clock):
    """A night in which two models run under a power cap that one of them tells; `clock` multiplies their eager device time."""
    rng = np.random.default_rng(number)
    made = []
    for model in MODELS:
        noise = [math.exp(rng.normal(0, 0.0015)) for _ in range(2)]
        moved = clock if model in (HOT, FREE) else 1.0
        # The compiled program draws less: its clock moves half as far.
        metrics = {"eager_kernel_ms": 17 * moved * noise[0], "compiled_kernel_ms": 21 * math.sqrt(moved) * noise[1]}
        held_by = ["power_cap"] if model == HOT else []
        details = {"surroundings": {"before": {}, "after": {"clocks_held_by": held_by}}}
        made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics, details=details))
    commit = ("b" if number == 6 else "a") * 40
    judging.put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=commit)


def test_a_clock_that_fell_is_no_regression_where_the_gpu_was_held_back(store, tmp_path):
    """Six nights of one commit, and one of the next, whose clock is slower than that of the sixth."""
    clocks = [*np.exp(np.random.default_rng(0).normal(0, CLOCK, 5)), 1.0, 1.10]
    for number, clock in enumerate(clocks):
        make_run(store, tmp_path, number, clock)
    found, rows = judging.judged(store)
    row = rows.loc[HOT]
    assert (row["throttled"], row["verdict"]) == (True, "inconclusive")
    assert row["compiled_kernel_ms_ratio"] > 1.045
    assert abs(row["compiled_kernel_ms_adjusted"]) < 0.02  # half of what the eager run moved by
    assert row["compiled_kernel_ms_explained"] == pytest.approx(0.05, abs=0.015)
    # The eager run of a cell of which no cap is told moves with its own program only.
    assert (rows.loc[FREE, "throttled"], rows.loc[FREE, "verdict"]) == (False, "regressed")
    assert rows.loc[FREE, "compiled_kernel_ms_explained"] == pytest.approx(0.0, abs=0.002)
    with store.connect() as conn:
        hot, free = (" ".join(evidence_of(conn, judging.cell_of(found, model))) for model in (HOT, FREE))
    assert "the GPU was held back while base was measured (power cap) and new was measured (power cap)" in hot
    assert "held back" not in free
    assert [one["model"] for one in found.to_json()["cells"] if one["held_back"]] == [HOT]
