"""One word for what became of a cell, and how many cells there are of each."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd

from analysis.transitions import Transition
from dashboard.changes import Look, band, look

#: In the order in which they are worth a look. The key is also what the address says.
OUTCOMES = {
    "broke": "broke",
    "slower": "slower",
    "missing": "missing in new",
    "still_failing": "still failing",
    "faster": "faster",
    "fixed": "fixed",
    "within": "within spread",
    "missing_in_base": "missing in base",
    "missing_in_both": "missing in both",
    "not_applicable": "not applicable",
    "entered": "only planned in new",
    "left": "only planned in base",
}
#: Outcomes that are neither good nor bad have no colour.
LOOKS: dict[str, Look] = {
    "broke": "worse",
    "slower": "worse",
    "missing": "worse",
    "faster": "better",
    "fixed": "better",
}
#: What decides, in this order. Latency has its say where device time stays within the spread, since a lost cudagraph
#: costs launches and no device time, but only for a large change: it differs more from run to run than within one.
DECIDING = ("compiled_kernel_ms", "compiled_ms")
LARGE = 0.10
RULE = (
    "Slower and faster go by device time; by latency where device time stays within the spread and latency changed by "
    "more than 10 %, or where there is no device time."
)


def with_outcomes(cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison with what became of each cell.

    `outcome` is a key of `OUTCOMES`; `outcome_metric` and `outcome_change` (the absolute natural logarithm of its
    ratio) say by what it was decided; both are absent in cells that do not pass on both sides.
    """
    names = ("transition", "spread_base", "spread_new", *(f"{metric}_ratio" for metric in DECIDING))
    found = [_outcome(*values) for values in zip(*(cells[name] for name in names), strict=True)]
    ratios = pd.Series([ratio for _, _, ratio in found], index=cells.index, dtype=float)
    return cells.assign(
        outcome=[outcome for outcome, _, _ in found],
        outcome_metric=pd.Series([metric for _, metric, _ in found], index=cells.index, dtype=object),
        outcome_change=np.abs(np.log(ratios)),
    )


def counts(cells: pd.DataFrame) -> Counter[str]:
    """How many cells there are of each outcome."""
    return Counter(cells["outcome"])


def _outcome(transition: str, spread_base: float, spread_new: float, *ratios: float) -> tuple[str, str | None, float]:
    if transition != Transition.BOTH_PASS.value:
        return transition, None, math.nan
    known = [(metric, ratio) for metric, ratio in zip(DECIDING, ratios, strict=True) if ratio > 0]
    for place, (metric, ratio) in enumerate(known):
        found = look(metric, ratio, band(metric, spread_base, spread_new))
        if place and abs(ratio - 1) <= LARGE:
            continue
        if found != "calm":
            return "slower" if found == "worse" else "faster", metric, ratio
    return "within", *(known[0] if known else (None, math.nan))
