"""One word for what became of a cell, and how many cells there are of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.transitions import Transition
from analysis.compare.verdicts import JUDGED, Outcome
from analysis.reports.suites import VERDICT_LOOKS, Look
from analysis.reports.words import called, ruled_out
from collector.metrics import METRICS
from dashboard.components.changes import judged
from dashboard.components.formats import count, signed

#: In the order in which they are worth a look. The key is also what the address says.
OUTCOMES = {
    "broke": "broke",
    "regressed": "regressed",
    "flaky": "flaky",
    "missing": "missing in new",
    "still_failing": "still failing",
    "improved": "improved",
    "fixed": "fixed",
    "inconclusive": called("inconclusive"),
    "unchanged": "unchanged",
    "environment_changed": "environment changed",
    "missing_in_base": "missing in base",
    "missing_in_both": "missing in both",
    "not_applicable": "not applicable",
    "entered": "only planned in new",
    "left": "only planned in base",
}
#: Outcomes that are neither good nor bad have no colour. The glyphs say the same without one.
LOOKS: dict[str, Look] = {"broke": "worse", "regressed": "worse", "improved": "better", "fixed": "better"}
GLYPHS = {"worse": "\N{MULTIPLICATION X}", "better": "\N{CHECK MARK}", "inconclusive": "?", "unchanged": "="}
CHANGED = (Outcome.REGRESSED.value, Outcome.IMPROVED.value)


def with_outcomes(cells: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison with what `analysis.compare.verdicts` says of each cell; `verdicts` go by cell_id.

    All columns of `verdicts`, and:
    - outcome, a key of `OUTCOMES`
    - outcome_metric and outcome_change (the absolute natural logarithm of its ratio): the metric that decided, else the
      one by which the comparison ranks; absent in cells that do not pass on both sides
    - more_runs: how many more runs of each side would settle an inconclusive cell; infinite for too many, NaN where runs
      do not help
    - comparable: whether the machine is the same, so that a metric's verdict may be shown as one
    """
    # The copy has one block a type: of hundreds of blocks, as a verdict's column is one, rows are taken slowly.
    joined = cells.join(verdicts, on="cell_id").copy()
    passing = joined["transition"] == Transition.BOTH_PASS.value
    verdict = joined["verdict"].where(joined["verdict"].notna(), Outcome.INCONCLUSIVE.value)
    outcome = joined["transition"].where(~(passing | (verdict == Outcome.FLAKY.value)), verdict)
    moved = joined["testbed_changed"].eq(True)
    decided = outcome.isin(CHANGED) | joined["rank_metric"].isna()
    metric = joined["verdict_metric"].where(decided, joined["rank_metric"]).where(passing)
    unsettled = (outcome == Outcome.INCONCLUSIVE.value) & ~moved
    return joined.assign(
        outcome=outcome,
        outcome_metric=metric,
        outcome_change=np.abs(np.log1p(_of_metric(joined, metric, "adjusted"))),
        more_runs=_of_metric(joined, metric, "more_runs").where(unsettled),
        comparable=passing & ~moved & (outcome != Outcome.ENVIRONMENT_CHANGED.value),
    )


def _of_metric(cells: pd.DataFrame, metric_of: pd.Series, name: str) -> pd.Series:
    """The value of column `name` of each cell's own metric."""
    values = pd.Series(np.nan, index=cells.index, dtype=float)
    for metric in (metric for metric in JUDGED if f"{metric}_{name}" in cells):
        values = values.where(metric_of != metric, cells[f"{metric}_{name}"].astype(float))
    return values


def said(row: Mapping[Any, Any]) -> tuple[str, str]:
    """The outcome of a cell (a row of `with_outcomes`), and what decided: metrics that changed, statuses, or what is ruled out.

    The second text may be empty.
    """
    outcome = row["outcome"]
    sides = (status(row[f"status_{side}"], is_expected=row[f"expected_{side}"]) for side in ("base", "new"))
    statuses = " → ".join(dict.fromkeys(sides))
    detail = "" if statuses == "pass" else statuses
    if outcome in VERDICT_LOOKS:
        detail = ", ".join(_changed(row))
    elif outcome == "inconclusive" and row.get("testbed_changed") not in (None, False):
        detail = "measured on another testbed"
    elif outcome == "inconclusive":
        limits = (row.get(f"{row['outcome_metric']}_{end}", np.nan) for end in ("low", "high"))
        detail = ", ".join(filter(None, (ruled_out(*limits), _runs(row["more_runs"]))))
    return OUTCOMES[outcome], detail


def status(status: object, *, is_expected: bool) -> str:
    """The status of a cell on a side, or that it has none."""
    return status if isinstance(status, str) else "missing" if is_expected else "not planned"


def _changed(row: Mapping[Any, Any]) -> list[str]:
    """Each metric with a verdict of its own, the one that decided first: `compiled latency -88 %`, `cold compile +263 %`."""
    metrics = [metric for metric in JUDGED if row.get(f"{metric}_verdict") in VERDICT_LOOKS]
    metrics.sort(key=lambda metric: metric != row["outcome_metric"])
    sizes = {metric: each.of_verdict - 1 for metric in metrics if (each := judged(metric, row))}
    # What was nothing before has no ratio.
    return [
        f"{METRICS[name].title} {'' if np.isnan(size) else signed(100 * size, 0)}".rstrip()
        for name, size in sizes.items()
    ]


def _runs(more: float) -> str:
    """Further runs of each side until the interval is as narrow as the smallest change that counts; 0 is narrow already."""
    if np.isnan(more):
        return ""
    if not more:
        return "at the limit of what matters"
    return "over 50 more runs of each side" if np.isinf(more) else f"{count(int(more), 'more run')} of each side"
