"""The table of noise between processes, from bundles whose noise is known."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.process_noise import launch_bound, repeated, reused_all, spread_of
from tests.factories import cell, failing, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "benchmarks", "process_noise"]


def processes(values, eager=None):
    eager = eager or [20.0] * len(values)
    return [
        passing(cell("m"), metrics={"compiled_ms": value, "eager_ms": beside})
        for value, beside in zip(values, eager, strict=True)
    ]


def test_the_spread_is_the_standard_deviation_of_logarithms():
    items = processes([10.0 * math.exp(step) for step in (-0.02, 0.0, 0.02, 0.0)])
    assert spread_of(items, "compiled_ms") == pytest.approx(math.sqrt(2 * 0.02**2 / 3))
    assert spread_of(items, "speedup") is None


def test_what_the_eager_run_explains_is_left_out():
    steps = (-0.3, -0.1, 0.0, 0.1, 0.3)
    items = processes([10.0 * math.exp(step) for step in steps], [20.0 * math.exp(step) for step in steps])
    assert spread_of(items, "compiled_ms") > 0.2
    assert spread_of(items, "compiled_ms beside eager") < 0.005


@pytest.mark.parametrize(
    ("details", "flagged"),
    [({"launch_bound": ["compiled"]}, True), ({"launch_bound": ["eager"]}, False), ({}, False)],
)
def test_cells_that_wait_for_launches_are_told_apart(details, flagged):
    item = passing(cell("m"), details=details)
    assert launch_bound([passing(cell("m"), metrics={"compiled_ms": 1.0}), item], {"compiled"}) is flagged


def test_cells_that_fail_or_are_too_few_do_not_count():
    items = [*processes([1.0, 1.0, 1.0]), failing(cell("m")), *(passing(cell("other")) for _ in range(4))]
    assert [name for _, name in repeated(items)] == [name for _, name in repeated([passing(cell("other"))] * 4)]


def test_the_script_prints_a_line_a_metric(tmp_path):
    for number in range(4):
        write_bundle(tmp_path, header(f"r{number}", minutes=number), processes([10.0 + number / 10]))
    bundles = map(str, sorted(tmp_path.glob("*.gz")))
    done = subprocess.run([*COMMAND, *bundles], cwd=ROOT, capture_output=True, text=True, check=True)
    counted, _, *lines, largest = done.stdout.splitlines()
    assert largest == "largest ratio of two processes of a cell: compiled_ms 1.03"
    assert counted == "processes a cell: 4 to 4"
    assert [line.split()[1] for line in lines] == ["eager_ms", "compiled_ms", "compiled_ms"]
    none = subprocess.run(
        [*COMMAND, str(next(tmp_path.glob("*.gz")))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (none.returncode, none.stderr.strip()) == (1, "no cell passes in 4 of the bundles")


@pytest.mark.parametrize(
    ("shared", "reused"),
    [
        (None, False),
        ({"kernels_found": 3, "kernels_tuned": 0, "decided_otherwise": 0, "operations_new": 0}, True),
        ({"kernels_found": 2, "kernels_tuned": 1, "decided_otherwise": 0, "operations_new": 0}, False),
        ({"kernels_found": 3, "kernels_tuned": 0, "decided_otherwise": 0, "operations_new": 1}, False),
        ({"not_kept": "OSError: no room"}, False),
    ],
)
def test_a_process_reused_all_autotuning_results_if_it_tuned_nothing(shared, reused):
    assert reused_all({"shared_tuning": shared} if shared else {}) is reused
