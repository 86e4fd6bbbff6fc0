"""Rules for cells whose GPU was held back, on synthetic processes of one code in which one model's clock moved its times."""

from __future__ import annotations

import random

import pytest

import analysis.verdicts
from analysis.paired_values import PairedValues
from scripts.clock_rules import RULES, judging_by
from scripts.prove_verdicts import prove, read_repetitions
from tests.factories import cell, header, passing, write_bundle


@pytest.fixture(scope="module")
def repetitions(tmp_path_factory):
    """Four processes of eight models; in the last two the first model ran at a lower clock, compiled half as much as eager."""
    folder, rng = tmp_path_factory.mktemp("clocks"), random.Random(3)
    for number in range(4):
        items = []
        for place in range(8):
            clock = 1.10 if place == 0 and number >= 2 else 1.0
            compiled = 10 * clock**0.5 * (1 + rng.gauss(0, 0.001))
            metrics = {"compiled_ms": compiled, "compiled_kernel_ms": compiled, "eager_kernel_ms": 20 * clock}
            metrics |= {"eager_ms": 20 * clock, "device_speedup": 20 * clock / compiled}
            items.append(passing(cell(f"m{place}"), metrics=metrics, samples={"compiled_ms": [compiled] * 5}))
        head = header(f"r{number}", minutes=number, label=f"again, {number + 1} of 4")
        write_bundle(folder, head, items)
    return read_repetitions(folder)


@pytest.mark.parametrize(
    ("rule", "has_alarms"),
    [("nothing", True), ("ours", False), ("everywhere", False), ("ratio", True), ("wider", True)],
)
def test_a_clock_that_moved_is_an_alarm_or_none_by_the_rule(repetitions, rule, has_alarms):
    with judging_by(rule, ["m0"]):
        tallies = prove(repetitions, [], {})
    alarms = {runs: tally.false for (_, metric, runs), tally in tallies.items() if metric == "compiled_kernel_ms"}
    assert bool(alarms["1:2"] + alarms["2:2"]) == has_alarms
    assert {name for found in alarms.values() for name in found} <= {"m0 default"}


def test_ours_is_what_is_used_and_all_is_as_before_afterwards(repetitions):
    before = analysis.verdicts.beside_eager, analysis.verdicts.ALSO_READ, PairedValues.held_back
    assert RULES["ours"] is before[0]
    with pytest.raises(KeyError), judging_by("no such rule"):
        pass
    with judging_by("wider", ["m0"]):
        assert analysis.verdicts.beside_eager is RULES["wider"]
    assert (analysis.verdicts.beside_eager, analysis.verdicts.ALSO_READ, PairedValues.held_back) == before
