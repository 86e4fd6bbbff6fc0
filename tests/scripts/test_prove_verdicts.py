"""The proof's arithmetic on synthetic processes whose noise and slow-downs are known, and the rules it is held against."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Status
from scripts.prove_verdicts import Tally, injected_levels, of_common_cells, print_table, prove, read_repetitions
from scripts.rivals import RIVALS, Case, hud_two_in_a_row, hud_two_point, otava, pooled_mann_whitney, rustc_fence
from tests.factories import cell, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]
QUIET = [10.0, 10.01, 9.99, 10.0, 10.02, 10.0]


def case(new, history=QUIET, base=10.0, base_samples=(10.0,) * 30, new_samples=None):
    return Case(history, base, new, base_samples, new_samples or [new[0]] * 30)


@pytest.mark.parametrize(
    ("rule", "alarms", "silent"),
    [
        (hud_two_point, case([10.6]), case([10.4])),
        (hud_two_in_a_row, case([10.6, 10.7]), case([10.6, 10.1])),
        (rustc_fence, case([10.2]), case([10.01])),
        (rustc_fence, case([10.2]), case([10.2], history=[10, 11, 10, 11, 10, 11])),
        (pooled_mann_whitney, case([10.01]), case([10.0])),
        (otava, case([10.5, 10.5]), case([10.01, 10.0])),
        (otava, case([10.5, 10.5]), case([9.5, 9.5])),
    ],
)
def test_a_rule_alarms_as_it_is_documented(rule, alarms, silent):
    assert rule(alarms)
    assert not rule(silent)


def test_a_fence_needs_two_earlier_changes():
    assert not rustc_fence(case([20.0], history=[10.0]))


@pytest.mark.parametrize("rule", [hud_two_in_a_row, otava])
def test_rules_that_want_two_new_runs_say_nothing_of_one(rule):
    assert not rule(case([20.0]))


def synthetic(folder, count=5, models=4, noise=0.002):
    """Repetitions of one GPU; the first two with a slow-down of 50 %."""
    rng = random.Random(7)
    for number in range(count):
        inject = [0.5] if number < 2 else []
        items = []
        for model in range(models):
            value = 10.0 * (1 + rng.gauss(0, noise))
            details = {
                "injected": {
                    f"{level:g}": {
                        "eager_ms": 20.0,
                        "compiled_ms": value * (1 + level),
                        "compiled_kernel_ms": value * (1 + level),
                        "samples": [value * (1 + level)] * 5,
                    }
                    for level in inject
                }
            }
            metrics = {"eager_ms": 20.0, "compiled_ms": value, "compiled_kernel_ms": value, "eager_kernel_ms": 20.0}
            samples = {"eager_ms": [20.0] * 5, "compiled_ms": [value + place / 1e6 for place in range(5)]}
            items.append(passing(cell(f"m{model}"), metrics=metrics, samples=samples, details=details))
        head = header(
            f"r{number}", minutes=number, label=f"again, {number % 4 + 1} of 4", asked={"settings": {"inject": inject}}
        )
        write_bundle(folder, head, items)


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proof")
    synthetic(folder, count=4)
    return folder


def test_repetitions_with_slow_downs_come_first(proof):
    found = read_repetitions(proof)
    assert [runs[0].header.run_id for runs in found] == ["r0", "r1", "r2", "r3"]
    assert injected_levels(found) == [0.5]


@pytest.fixture(scope="module")
def tallies(proof):
    return prove(read_repetitions(proof), [0.5])


def test_a_quiet_machine_gives_no_false_alarm_and_full_power(tallies):
    # Four runs are the new one in turn, each against two others.
    for runs in ("1:1", "1:2", "2:2"):
        ours = tallies["inductor-watch", "compiled_kernel_ms", runs]
        assert (ours.alarms[0.0], ours.cells[0.0]) == (0, 4 * 2 * 4)
        # Two runs with slow-downs, one base each; every cell is slowed once.
        assert (ours.alarms[0.5], ours.cells[0.5]) == (2 * 4, 2 * 4)
    hud = tallies["HUD, 5 % two-point", "compiled_ms", "1:1"]
    assert (hud.alarms[0.0], hud.cells[0.0], hud.alarms[0.5], hud.cells[0.5]) == (0, 4 * 2 * 4, 2 * 4, 2 * 4)
    assert {name for name, _, _ in tallies} == {"inductor-watch", *RIVALS}


def test_the_table_has_a_line_for_each_method(proof, tallies, capsys):
    print_table(read_repetitions(proof), [0.5], tallies)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 processes of the same code for each of 4 cells"
    assert lines[1] == "a slow-down of 50% of device time was measured as 50.0% (5 to 95 %: 50.0% .. 50.0%)"
    for name in ("inductor-watch", *RIVALS):
        assert any(line.startswith(name) for line in lines), lines
    (ours,) = (line for line in lines if line.startswith("inductor-watch") and "any metric" in line and " 2:2 " in line)
    assert ours.split()[-1] == "1.00"
    assert not any(line.startswith("false alarms of ours") for line in lines)


def test_false_alarms_are_named(proof, capsys):
    tally = Tally()
    tally.add(0.0, 1, 4)
    tally.false["m0 triton"] += 1
    print_table(read_repetitions(proof), [], {("inductor-watch", "any metric", "1:2"): tally})
    assert capsys.readouterr().out.splitlines()[-1] == "false alarms of ours by any metric, 1:2: 1 x m0 triton"


def test_only_cells_that_pass_everywhere_and_never_had_to_tune_are_compared(tmp_path):
    synthetic(tmp_path, count=3, models=3)
    repetitions = read_repetitions(tmp_path)
    found, tuned = ({"kernels_tuned": number, "decided_otherwise": 0} for number in (0, 2))
    for number, repetition in enumerate(repetitions):
        for item in repetition[0].measurements:
            item.details["shared_tuning"] = tuned if number == 1 and item.cell.model == "m1" else found
    repetitions[2][0].measurements[2].status = Status.CRASHED

    def models(shared):
        return [[item.cell.model for item in runs[0].measurements] for runs in of_common_cells(repetitions, shared)]

    assert models(shared=False) == [["m0", "m1"]] * 3
    assert models(shared=True) == [["m0"]] * 3
    assert of_common_cells([]) == []


def test_too_few_repetitions_are_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "scripts/prove_verdicts.py", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [f"{tmp_path}: 0 whole repetitions, at least 3 are needed"]


def test_a_cut_repetition_is_left_out(tmp_path):
    synthetic(tmp_path, count=4, models=1)
    whole = read_bundle(next(iter(sorted(tmp_path.glob("*.gz")))))
    write_bundle(tmp_path, header("z", label=whole.header.label, asked=whole.header.asked), [])
    assert [len(runs) for runs in read_repetitions(tmp_path)] == [2]
