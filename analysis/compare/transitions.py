"""How one cell's outcome on the new side relates to the one on the base side."""

from __future__ import annotations

from enum import StrEnum

import pandas as pd

from collector.vocabulary import NOT_APPLICABLE, Status


class Transition(StrEnum):
    """What became of a cell from base to new. A cell is expected where it was planned, or measured without a plan."""

    BOTH_PASS = "both_pass"  # noqa: S105 -- no password
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    MISSING = "missing"  # expected on both sides, a row in base only
    MISSING_IN_BASE = "missing_in_base"  # expected on both sides, a row in new only
    MISSING_IN_BOTH = "missing_in_both"  # expected on both sides, no row in either
    NOT_APPLICABLE = "not_applicable"  # unavailable or skipped on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new


def transitions(cells: pd.DataFrame) -> pd.Series:
    """The transition of every row, from its columns expected_base, expected_new, status_base and status_new."""
    base, new = (cells[f"status_{side}"].tolist() for side in ("base", "new"))
    expected = (cells[f"expected_{side}"].tolist() for side in ("base", "new"))
    # Few different rows: each is judged once.
    known: dict[tuple[object, ...], str] = {}
    found = []
    for row in zip(*expected, base, new, strict=True):
        word = known.get(row)
        if word is None:
            word = known[row] = _transition(*(None if value != value else value for value in row)).value
        found.append(word)
    return pd.Series(found, cells.index, dtype=object)


def _transition(expected_base: object, expected_new: object, base: object, new: object) -> Transition:
    passed = base == Status.PASS, new == Status.PASS
    rules = [
        (not expected_base, Transition.ENTERED),
        (not expected_new, Transition.LEFT),
        (base is None and new is None, Transition.MISSING_IN_BOTH),
        (new is None, Transition.MISSING),
        (base is None, Transition.MISSING_IN_BASE),
        (base in _UNASKED or new in _UNASKED, Transition.NOT_APPLICABLE),
        (all(passed), Transition.BOTH_PASS),
        (passed[0], Transition.BROKE),
        (passed[1], Transition.FIXED),
    ]
    return next((transition for holds, transition in rules if holds), Transition.STILL_FAILING)


_UNASKED = [status.value for status in NOT_APPLICABLE]
