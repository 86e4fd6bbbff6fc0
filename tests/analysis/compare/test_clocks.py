"""Cells that ran while the GPU was held back: their clock moves eager and compiled device time, which no commit does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.reports.facts import evidence_of
from tests.analysis.compare import judging
from tests.factories import cell, passing

MODELS = [f"model{number:02}" for number in range(24)]
#: The model that draws so much power, and how far its clock moves its eager time from night to night.
HOT, CLOCK = MODELS[0], 0.015


def make_run(store, folder, number, *, commit="a" * 40, capped=True, clock=None, slower=1.0):
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
        metrics["compiled_kernel_ms"] *= slower if model == HOT else 1
        held_by = ["power_cap"] if model == HOT and capped else []
        details = {"surroundings": {"before": {}, "after": {"clocks_held_by": held_by}}}
        made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics, details=details))
    judging.put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=commit)


def judged(store):
    """The comparison of the newest two nights, its rows, and the evidence of the hot model."""
    found, rows = judging.judged(store)
    with store.connect() as conn:
        lines = evidence_of(conn, judging.cell_of(found, HOT))
    return found, rows, lines


@pytest.fixture
def nights(store, tmp_path):
    """A way to make some nights of one commit, the base one more, and the new one; both are given by what differs in them."""

    def make(base, new, before=5, **all_of_them):
        for number in range(before):
            make_run(store, tmp_path, number, **all_of_them)
        make_run(store, tmp_path, before, **all_of_them, **base)
        make_run(store, tmp_path, before + 1, commit="b" * 40, **all_of_them, **new)
        return judged(store)

    return make


def test_a_clock_that_fell_is_no_regression_where_the_gpu_was_held_back(nights):
    found, rows, lines = nights({"clock": 1.0}, {"clock": 1.10})
    row = rows.loc[HOT]
    assert (row["throttled"], row["verdict"]) == (True, "inconclusive")
    assert row["compiled_kernel_ms_ratio"] > 1.045
    assert abs(row["compiled_kernel_ms_adjusted"]) < 0.02  # half of what the eager run moved by
    assert row["compiled_kernel_ms_explained"] == pytest.approx(0.05, abs=0.015)
    assert not rows.drop(HOT)["throttled"].any()
    assert "the GPU was held back while base was measured (power cap) and new was measured (power cap)" in " ".join(
        lines
    )
    told = {one["model"]: one["held_back"] for one in found.to_json()["cells"]}
    assert told[HOT] is True and sum(told.values()) == 1


def test_the_same_times_without_a_word_of_a_cap_are_a_regression(nights):
    """The eager run of such a cell moves with its own program only."""
    _, rows, lines = nights({"clock": 1.0}, {"clock": 1.10}, capped=False)
    assert (rows.loc[HOT, "throttled"], rows.loc[HOT, "verdict"]) == (False, "regressed")
    assert rows.loc[HOT, "compiled_kernel_ms_explained"] == pytest.approx(0.0, abs=0.002)
    assert "held back" not in " ".join(lines)


def test_a_slow_down_is_found_under_a_power_cap_too(nights):
    _, rows, _ = nights({"clock": 1.0}, {"clock": 1.01, "slower": 1.10}, before=8)
    assert rows.loc[HOT, ["verdict", "verdict_metric"]].tolist() == ["regressed", "compiled_kernel_ms"]
    assert rows.loc[HOT, "compiled_kernel_ms_low"] < 0.10 < rows.loc[HOT, "compiled_kernel_ms_high"]


def test_the_noise_of_quiet_cells_stays_what_it_is(nights):
    found, rows, _ = nights({}, {}, before=6)
    assert found.noise["compiled_kernel_ms"].typical == pytest.approx(0.0015, rel=0.6)
    assert (rows.drop(HOT)["compiled_kernel_ms_verdict"] == "unchanged").all()
