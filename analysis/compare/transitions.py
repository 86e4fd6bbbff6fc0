"""How one cell's outcome on the new side relates to the one on the base side."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
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
    NOT_APPLICABLE = "not_applicable"  # unavailable, skipped or not checked on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new


def transitions(cells: pd.DataFrame) -> pd.Series:
    """The transition of every row, from its columns expected_base, expected_new, status_base and status_new."""
    base, new = cells["status_base"], cells["status_new"]
    passed, still_passes = base == Status.PASS.value, new == Status.PASS.value
    not_applicable = [status.value for status in NOT_APPLICABLE]
    # The first rule that holds counts.
    rules = {
        Transition.ENTERED: ~cells["expected_base"],
        Transition.LEFT: ~cells["expected_new"],
        Transition.MISSING_IN_BOTH: base.isna() & new.isna(),
        Transition.MISSING: new.isna(),
        Transition.MISSING_IN_BASE: base.isna(),
        Transition.NOT_APPLICABLE: base.isin(not_applicable) | new.isin(not_applicable),
        Transition.BOTH_PASS: passed & still_passes,
        Transition.BROKE: passed,
        Transition.FIXED: still_passes,
    }
    masks = [mask.to_numpy(dtype=bool) for mask in rules.values()]
    words = np.select(masks, [transition.value for transition in rules], Transition.STILL_FAILING.value)
    return pd.Series(words.astype(object), cells.index)
