"""False verdicts and power on measured processes, from bundles whose noise is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.measured_power import fence, judged, processes_of, scaled
from collector.bundle import read_bundle
from tests.factories import cell, header, passing, write_bundle


@pytest.fixture
def contents(tmp_path):
    """Six processes of eight cells with 0.3 % of noise."""
    rng = np.random.default_rng(1)
    made = []
    for number in range(6):
        values = np.exp(rng.normal(0, 0.003, 8))
        items = [passing(cell(f"m{at}"), metrics=latencies(10 * value)) for at, value in enumerate(values)]
        made.append(read_bundle(write_bundle(tmp_path, header(f"r{number}", minutes=60 * number), items)))
    return made


def latencies(compiled_ms):
    return {"eager_ms": 20.0, "compiled_ms": compiled_ms, "speedup": 20.0 / compiled_ms}


def test_a_slower_program_takes_longer_and_speeds_up_less():
    item = scaled(passing(cell("m"), metrics=latencies(10.0), samples={"compiled_ms": [9.0, 11.0]}), 0.25)
    assert {name: item.metrics[name] for name in latencies(1.0)} == latencies(12.5)
    assert item.samples == {"compiled_ms": [11.25, 13.75]}


def test_the_fence_is_three_quartile_distances_above_the_upper_quartile():
    values = [100.0, 101.0, 99.99, 103.9896]  # steps of 1, 1 and 4 %
    assert fence(values) == pytest.approx(0.04 + 3 * 0.03)


def test_a_process_has_one_measurement_of_each_cell(contents):
    processes = processes_of(contents, shared=False)
    assert [len(process) for process in processes] == [8] * 6
    assert processes_of(contents, shared=True) == []


def test_a_large_step_is_found_and_the_same_code_is_not_called(contents):
    processes = processes_of(contents, shared=False)[:4]
    same, pairs = judged(contents, processes, 0.0)
    slower, _ = judged(contents, processes, 0.1)
    assert pairs == 4 * 3 * 8
    assert same["compare"] / pairs < 0.05
    assert slower["compare"] == slower["HUD, 5 %"] == pairs
    assert math.isclose(slower["rustc-perf"], pairs, rel_tol=0.1)
