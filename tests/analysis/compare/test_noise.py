"""The noise of cells, learned from synthetic runs whose noise is known."""

import math

import numpy as np
import pytest

from analysis.compare.noise import FEWEST_SIBLINGS, RepeatRows, learn_noise
from analysis.stats.run_noise import MOST_FROM_SIBLINGS
from db.queries.series import repeats
from db.queries.sides import resolve_side
from tests.analysis.compare.judging import put_run
from tests.factories import CUDAGRAPHS, DEFAULT, cell, passing

MODELS = [f"model{number}" for number in range(12)]


def measured(which, minutes, value, **changes):
    """A pass that says this compiled latency."""
    return passing(which, minutes=minutes, samples={}, metrics={"compiled_ms": value}, **changes)


def rows_of(store, side="latest"):
    with store.connect() as conn:
        return repeats(conn, [resolve_side(conn, side)], ["compiled_ms"])


def make_nights(store, folder, nights, level, program):
    """Nights of twelve models under one config, each of another commit; `level` multiplies their latencies."""
    rng = np.random.default_rng(1)
    for number in range(nights):
        made = []
        for model in MODELS:
            value = level(number) * math.exp(rng.normal(0, 0.01))
            made.append(measured(cell(model), 60 * number + 1, value, program_id=program(number)))
        put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=f"{number:040x}")


def test_many_nights_of_different_commits_tell_the_noise(store, tmp_path):
    """From the eighth on there is a new option of Inductor, and all take twice as long."""
    level, program = (lambda number: 2.0 if number >= 7 else 1.0), (lambda number: "ab"[number >= 7] * 12)
    make_nights(store, tmp_path, 14, level=level, program=program)
    found = learn_noise(RepeatRows(rows_of(store)), "compiled_ms")
    assert found.typical == pytest.approx(0.012, rel=0.3)
    assert found.prior.df <= MOST_FROM_SIBLINGS


def test_what_runs_one_program_is_its_own_repeat_and_a_copy_is_none(store, tmp_path):
    """Two names for one program, measured each: an A/A pair. Two names that share a measurement: nothing."""
    made = []
    for number, model in enumerate(MODELS):
        started, value = (2, 1.02) if number < 6 else (1, 1.0)
        made.append(measured(cell(model, DEFAULT), 1, 1.0, program_id="p" * 12))
        made.append(measured(cell(model, CUDAGRAPHS), started, value, program_id="p" * 12))
    put_run(store, tmp_path, "r1", made)
    found = learn_noise(RepeatRows(rows_of(store)), "compiled_ms")
    assert found.repeats == 6
    assert found.typical == pytest.approx(math.log(1.02) / math.sqrt(2))


def test_cells_of_a_noisy_program_do_not_raise_the_noise_of_another(store, tmp_path):
    rng = np.random.default_rng(3)
    quiet = [(cell(f"m{number}", DEFAULT), 0.002, "a" * 12) for number in range(FEWEST_SIBLINGS)]
    noisy = [(cell(f"m{number}", CUDAGRAPHS), 0.05, "b" * 12) for number in range(10)]
    for run in ("r1", "r2"):
        made = [
            measured(which, 1, math.exp(rng.normal(0, sd)), program_id=program) for which, sd, program in quiet + noisy
        ]
        put_run(store, tmp_path, run, made, commit="a" * 40)
    rows = RepeatRows(rows_of(store, "r2"))
    found = learn_noise(rows, "compiled_ms")
    sd = dict(zip(rows.cells, np.sqrt(found.variance), strict=True))
    assert max(sd[which.cell_id] for which, *_ in quiet) < 0.006
    assert np.median([sd[which.cell_id] for which, *_ in noisy]) > 0.01
    assert found.typical == pytest.approx(0.002, rel=0.5)
