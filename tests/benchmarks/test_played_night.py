"""A night that is played again: what its processes worked and held is taken from their records, waiting is not."""

from __future__ import annotations

import pytest

from benchmarks.played_night import play, played
from tests.factories import CUDAGRAPHS, DEFAULT, cell, passing

HELD = {"device": 4.0, "measure": 2.0, "profile": 1.0}


def found(model, config=DEFAULT, **details):
    which = cell(model, config, device="cuda")
    return passing(which, wall_s=60.0, details={"held_s": HELD, "waited_s": 30.0, "stopped_s": 1.0, **details})


def test_the_night_takes_what_its_processes_took_without_waiting():
    night = [found("a"), found("b"), found("a", repeated="the first one was disturbed"), found("c", only="code")]
    whole = played(night)
    assert {one.found.cell.model for one in whole.values()} == {"a", "b"}
    # Of 60 s 30 were waiting.
    cells = [one.found.cell for one in whole.values()]
    assert play(whole, cells, 1, 79e9).now == pytest.approx(2 * 30.0, abs=1.0)
    assert play(whole, cells, 2, 79e9).now == pytest.approx(30.0 + 3.0, abs=1.0), (
        "one has the device alone while it is timed"
    )


def test_a_model_keeps_what_its_config_without_a_pool_keeps():
    sizes = {"compile": 9e9, "done": 2e9}
    whole = played([found("a", stage_bytes=sizes, kept_bytes=9e9), found("a", CUDAGRAPHS, kept_bytes=8e9)])
    assert {one.keeps for one in whole.values()} == {2_000_000_000}
    # Half of the most stays between the calls of a check, of which a part may be played.
    for part, kept in [(1.0, 4.5e9), (0.5, 2.25e9)]:
        (one,) = played([found("a", stage_bytes={"correctness": 9e9})], part).values()
        assert max(step.keeps for step in one.script().steps) == kept
