"""Commits that change eager, on the measured nights."""

from __future__ import annotations

from pathlib import Path

from benchmarks.eager_effects import Effect, answers, nights_of

NIGHTS = Path(__file__).parents[2] / "data" / "nights"


def test_untouched_cells_do_not_change_and_slowed_ones_do_not_hide():
    effect = Effect("+5 % in half of the models", 0.5, 1.05, 1.05)
    for answer in answers(nights_of(NIGHTS), effect).values():
        assert not {"regressed", "improved"} & answer.untouched.keys()
        assert not {"unchanged", "improved"} & answer.slowed.keys()
        assert answer.exit_code == 1
        assert answer.notes[0].startswith("eager changed in ")
