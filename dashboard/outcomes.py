"""One word for what became of a cell, and how many cells there are of each."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from analysis.transitions import Transition
from dashboard.changes import band, look

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
    "not_applicable": "not applicable",
    "entered": "only planned in new",
    "left": "only planned in base",
}
#: Outcomes that are neither good nor bad have no colour.
LOOKS = {"broke": "worse", "slower": "worse", "missing": "worse", "faster": "better", "fixed": "better"}


def with_outcomes(cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison with a column `outcome`, a key of `OUTCOMES`.

    Cells that pass on both sides are told apart by device time, or by compiled latency where a side has none.
    """
    columns = (cells[name] for name in ("transition", "rank_metric", "rank_ratio", "spread_base", "spread_new"))
    return cells.assign(outcome=[_outcome(*values) for values in zip(*columns, strict=True)])


def counts(cells: pd.DataFrame) -> Counter[str]:
    """How many cells there are of each outcome."""
    return Counter(cells["outcome"])


def _outcome(transition: str, metric: str | None, ratio: float, spread_base: float, spread_new: float) -> str:
    if transition != Transition.BOTH_PASS.value:
        return transition
    if not isinstance(metric, str):
        return "within"
    found = look(metric, ratio, band(metric, spread_base, spread_new))
    return {"worse": "slower", "better": "faster", "calm": "within"}[found]
