"""What became of a cell, or of one dimension of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from analysis.stats.verdicts import Verdict

#: Better and worse have a colour; all else, known or not, is calm.
Look = Literal["better", "worse", "calm"]


class Outcome(StrEnum):
    """The outcome of a cell: a `Verdict` where it passes on both sides, else what became of its status.

    A cell is expected where it was planned, or measured without a plan.
    """

    REGRESSED = Verdict.REGRESSED.value
    IMPROVED = Verdict.IMPROVED.value
    UNCHANGED = Verdict.UNCHANGED.value
    INCONCLUSIVE = Verdict.INCONCLUSIVE.value
    ENVIRONMENT_CHANGED = "environment_changed"
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    FLAKY = "flaky"
    MISSING = "missing"  # expected on both sides, measured in base only
    MISSING_IN_BOTH = "missing_in_both"
    MISSING_IN_BASE = "missing_in_base"
    NOT_APPLICABLE = "not_applicable"  # unavailable, skipped or not checked on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new

    @property
    def verdict(self) -> Outcome | None:
        """The outcome as gate, reports and JSON count it; None where nothing can be said of the cell."""
        return self if self in VERDICTS else Outcome.MISSING if self is Outcome.MISSING_IN_BOTH else None

    @property
    def look(self) -> Look:
        """Whether it is good or bad."""
        return "worse" if self in WORSE else "better" if self in (Outcome.IMPROVED, Outcome.FIXED) else "calm"


CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
CONCLUSIVE = (*CHANGES, Outcome.UNCHANGED)
WORSE = (Outcome.REGRESSED, Outcome.BROKE)
#: Outcomes of a cell that does not pass on both sides.
OF_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.STILL_FAILING, Outcome.FLAKY, Outcome.MISSING)
#: All that `gate --fail-on` takes.
VERDICTS = (*CONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, *OF_STATUS)
