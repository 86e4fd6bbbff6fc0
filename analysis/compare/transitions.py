"""How one cell's outcome on the new side relates to the one on the base side."""

from __future__ import annotations

from enum import StrEnum

from db.queries.side_rows import CellState


class Transition(StrEnum):
    """What became of a cell from base to new. A cell is expected where it was planned, or measured without a plan."""

    BOTH_PASS = "both_pass"  # noqa: S105 -- no password
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    MISSING = "missing"  # expected on both sides, a row in base only
    MISSING_IN_BASE = "missing_in_base"  # expected on both sides, a row in new only
    MISSING_IN_BOTH = "missing_in_both"  # expected on both sides, no row in either
    NOT_APPLICABLE = "not_applicable"  # unavailable, skipped or not checked on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new


def transition(base: CellState, new: CellState) -> Transition:
    """Return what became of a cell from base to new; the first rule that holds counts."""
    rules = (
        (Transition.ENTERED, not base.is_expected),
        (Transition.LEFT, not new.is_expected),
        (Transition.MISSING_IN_BOTH, base.status is None and new.status is None),
        (Transition.MISSING, new.status is None),
        (Transition.MISSING_IN_BASE, base.status is None),
        (Transition.NOT_APPLICABLE, base.is_not_applicable or new.is_not_applicable),
        (Transition.BOTH_PASS, base.passes and new.passes),
        (Transition.BROKE, base.passes),
        (Transition.FIXED, new.passes),
    )
    return next((word for word, holds in rules if holds), Transition.STILL_FAILING)
