"""Nights in which most cells were carried over raise no alarm: in comparisons of consecutive nights, and in the history."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.compare.verdicts import compare_and_judge
from analysis.history.timelines import judge_history
from collector.metrics import MIN_EFFECT
from db.ingest import ingest_bundle
from tests.factories import cell, header, new_store, passing, write_bundle

MODELS, NIGHTS, EVERY = [f"model{number:02}" for number in range(12)], 20, 8
#: Noise from night to night: of a latency, of compile time.
NOISE = {"eager_ms": 0.003, "compiled_ms": 0.003, "compile_cold_s": 0.03}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Nights of equal speed, r00 to r19. All cells are measured in every eighth, and one of changed code in r04."""
    folder = tmp_path_factory.mktemp("carried")
    found, noise = new_store(folder / "store.db"), np.random.default_rng(4)
    for number in range(NIGHTS):
        made = []
        for model in MODELS:
            is_other = model == MODELS[0] and number >= 4
            is_timed = number % EVERY == 0 or (is_other and number == 4)
            base = {"eager_ms": 4.0, "compiled_ms": 2.0, "compile_cold_s": 10.0}
            metrics = {name: value * math.exp(noise.normal(0, NOISE[name])) for name, value in base.items()}
            last = 4 if is_other and number < EVERY else number - number % EVERY
            details = {} if is_timed else {"only": "code", "same_code_as": f"r{last:02}"}
            kept = metrics if is_timed else {"compile_cold_s": metrics["compile_cold_s"]}
            code = {"details": details, "samples": {}, "code_id": "other" if is_other else "c0de"}
            made.append(passing(cell(model), minutes=1440 * number + 1, metrics=kept, **code))
        head = header(f"r{number:02}", minutes=1440 * number, commit=f"{number:040x}")
        ingest_bundle(found, write_bundle(folder, head, made))
    return found


def test_consecutive_nights_are_unchanged(store):
    for number in range(1, NIGHTS):
        counts = compare_and_judge(store, f"r{number - 1:02}", f"r{number:02}")[1].counts()
        # A single repeat of the changed code may not show that it is as fast; it is no alarm.
        assert counts.pop("inconclusive", 0) <= (number == 4)
        assert counts.keys() == {"unchanged"}, number


def test_the_history_has_points_of_measured_nights_only_and_no_change(store):
    found = judge_history(store)
    assert found.changes == ()
    assert not any(found.series[metric] for metric in MIN_EFFECT), "three or four points are no series"
