"""The cells of a comparison in the order in which they matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.compare.results import Comparison
from analysis.compare.verdicts import Judgement, Outcome

#: What is known to have changed first.
_ORDER = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED)


def ranked(comparison: Comparison, judgement: Judgement) -> pd.DataFrame:
    """The cells that pass on both sides with their judgement and `by`, the metric that is shown.

    Real changes come first, the largest of each kind at the top; a cell without one is shown by the metric that the
    comparison ranks by (device time where both sides have it).
    """
    cells = comparison.cells.join(judgement.cells)
    cells = cells[cells["verdict"].isin([outcome.value for outcome in _ORDER])]
    is_change = cells["verdict"].isin([Outcome.REGRESSED.value, Outcome.IMPROVED.value])
    by = cells["verdict_metric"].where(is_change | cells["rank_metric"].isna(), cells["rank_metric"])
    cells = cells.assign(by=by, place=cells["verdict"].map({word.value: at for at, word in enumerate(_ORDER)}))
    cells = cells[cells["by"].notna()]
    return cells.assign(size=[_size(row, row["by"]) for row in cells.to_dict("records")]).sort_values(
        ["place", "size", "cell"], ascending=[True, False, True]
    )


def _size(row: Mapping[Any, Any], metric: str) -> float:
    """The size of the adjusted change, else of the change. From 0 to something there is no ratio: the largest of all."""
    adjusted, ratio = row[f"{metric}_adjusted"], row[f"{metric}_ratio"]
    if not math.isnan(adjusted):
        return abs(float(adjusted))
    return math.inf if math.isnan(ratio) else abs(float(ratio) - 1)
