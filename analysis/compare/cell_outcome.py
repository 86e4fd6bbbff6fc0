"""What became of a cell, or of one dimension of it."""

from __future__ import annotations

from enum import StrEnum

from analysis.stats.verdicts import Verdict


class Outcome(StrEnum):
    """The outcome of a cell: a `Verdict` where it passes on both sides, else what became of its status."""

    REGRESSED = Verdict.REGRESSED.value
    IMPROVED = Verdict.IMPROVED.value
    UNCHANGED = Verdict.UNCHANGED.value
    INCONCLUSIVE = Verdict.INCONCLUSIVE.value
    ENVIRONMENT_CHANGED = "environment_changed"
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    FLAKY = "flaky"
    MISSING = "missing"


CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
CONCLUSIVE = (*CHANGES, Outcome.UNCHANGED)
#: Outcomes of a cell that does not pass on both sides.
OF_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.STILL_FAILING, Outcome.FLAKY, Outcome.MISSING)
