"""The cells of a comparison in the order in which they matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.compare.results import Comparison
from analysis.compare.verdicts import Judgement, Outcome

#: Outcomes of cells that pass on both sides: what is known to have changed first.
PASSING = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED)


def ranked(comparison: Comparison, judgement: Judgement, order: Sequence[Outcome] = PASSING) -> pd.DataFrame:
    """The cells of these outcomes with their judgement, `by`, the metric that is shown, and `size`, that of its change.

    Within an outcome the largest change comes first. A cell that changed is shown by the metric that decided, any other by
    the metric that the comparison ranks by (device time where both sides have it). A cell that does not pass on both sides
    has no `by`, and its size is 0.
    """
    cells = comparison.cells.join(judgement.cells)
    cells = cells[cells["verdict"].isin([outcome.value for outcome in order])]
    is_change = cells["verdict"].isin([Outcome.REGRESSED.value, Outcome.IMPROVED.value])
    by = cells["verdict_metric"].where(is_change | cells["rank_metric"].isna(), cells["rank_metric"]).astype(object)
    by = by.where(cells["verdict"].isin([outcome.value for outcome in PASSING]), None)
    sizes = [_size(row, name) if name else 0.0 for row, name in zip(cells.to_dict("records"), by, strict=True)]
    position = cells["verdict"].map({outcome.value: at for at, outcome in enumerate(order)})
    cells = cells.assign(by=by, size=sizes, position=position)
    return cells.sort_values(["position", "size", "cell"], ascending=[True, False, True])


def _size(row: Mapping[Any, Any], metric: str) -> float:
    """The size of the adjusted change, else of the change. From 0 to something there is no ratio: the largest of all."""
    adjusted, ratio = row[f"{metric}_adjusted"], row[f"{metric}_ratio"]
    if not math.isnan(adjusted):
        return abs(float(adjusted))
    return math.inf if math.isnan(ratio) else abs(float(ratio) - 1)
