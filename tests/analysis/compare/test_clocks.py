"""Cells that ran while the GPU was held back: their clock moves eager and compiled device time, which no commit does."""

import math

import numpy as np
import pytest

from analysis.reports.facts import evidence_of
from tests.analysis.compare import judging
from tests.factories import cell, passing

MODELS = [f"model{number:02}" for number in range(24)]
#: The model that draws so much power, and how far its clock moves its eager time from night to night.
HOT, CLOCK = MODELS[0], 0.015


def make_run(store, folder, number, *, commit, capped, clock):
    """A night in which one model runs under a power cap, or is said not to; `clock` multiplies its eager device time."""
    rng = np.random.default_rng(number)
    made = []
    for model in MODELS:
        noise = [math.exp(rng.normal(0, 0.0015)) for _ in range(2)]
        moved = 1.0
        if model == HOT:
            moved = clock or math.exp(rng.normal(0, CLOCK))
        # The compiled program draws less: its clock moves half as far.
        metrics = {"eager_kernel_ms": 17 * moved * noise[0], "compiled_kernel_ms": 21 * math.sqrt(moved) * noise[1]}
        held_by = ["power_cap"] if model == HOT and capped else []
        details = {"surroundings": {"before": {}, "after": {"clocks_held_by": held_by}}}
        made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics, details=details))
    judging.put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=commit)


def judged_nights(store, folder, *, capped):
    """Six nights of one commit, and one of the next, whose clock is slower than that of the sixth, judged."""
    for number in range(7):
        commit, clock = ("b" * 40, 1.10) if number == 6 else ("a" * 40, 1.0 if number == 5 else None)
        make_run(store, folder, number, commit=commit, capped=capped, clock=clock)
    found, rows = judging.judged(store)
    with store.connect() as conn:
        return found, rows, " ".join(evidence_of(conn, judging.cell_of(found, HOT)))


def test_a_clock_that_fell_is_no_regression_where_the_gpu_was_held_back(store, tmp_path):
    found, rows, lines = judged_nights(store, tmp_path, capped=True)
    row = rows.loc[HOT]
    assert (row["throttled"], row["verdict"]) == (True, "inconclusive")
    assert row["compiled_kernel_ms_ratio"] > 1.045
    assert abs(row["compiled_kernel_ms_adjusted"]) < 0.02  # half of what the eager run moved by
    assert row["compiled_kernel_ms_explained"] == pytest.approx(0.05, abs=0.015)
    assert not rows.drop(HOT)["throttled"].any()
    assert "the GPU was held back while base was measured (power cap) and new was measured (power cap)" in lines
    told = {one["model"]: one["held_back"] for one in found.to_json()["cells"]}
    assert told[HOT] is True and sum(told.values()) == 1


def test_the_same_times_without_a_word_of_a_cap_are_a_regression(store, tmp_path):
    """The eager run of such a cell moves with its own program only."""
    _, rows, lines = judged_nights(store, tmp_path, capped=False)
    assert (rows.loc[HOT, "throttled"], rows.loc[HOT, "verdict"]) == (False, "regressed")
    assert rows.loc[HOT, "compiled_kernel_ms_explained"] == pytest.approx(0.0, abs=0.002)
    assert "held back" not in lines
