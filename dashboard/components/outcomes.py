"""One word for what became of a cell, and how many cells there are of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.compare.transitions import Transition
from analysis.compare.verdicts import JUDGED, Outcome
from analysis.reports.suites import Look
from analysis.reports.words import called

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
#: Words of older addresses.
_FORMER = {"slower": "regressed", "faster": "improved", "within": "unchanged"}
CHANGED = (Outcome.REGRESSED.value, Outcome.IMPROVED.value)


def with_outcomes(cells: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison with what `analysis.compare.verdicts` says of each cell; `judged` goes by cell_id.

    All columns of `judged`, and:
    - outcome, a key of `OUTCOMES`
    - outcome_metric and outcome_change (the absolute natural logarithm of its ratio): the metric that decided, else the
      one by which the comparison ranks; absent in cells that do not pass on both sides
    - more_runs: how many more runs of each side would settle an inconclusive cell; infinite for too many, NaN where runs
      do not help
    - comparable: whether the machine is the same, so that a metric's verdict may be shown as one
    """
    joined = cells.join(judged, on="cell_id")
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


def counts(cells: pd.DataFrame) -> Counter[str]:
    """How many cells there are of each outcome."""
    return Counter(cells["outcome"])


def translated(wanted: Iterable[str]) -> list[str]:
    """Outcomes as an address names them, those of an old address in the words of today; each once."""
    return list(dict.fromkeys(_FORMER.get(name, name) for name in wanted))


def _of_metric(cells: pd.DataFrame, metric_of: pd.Series, name: str) -> pd.Series:
    """The value of column `name` of each cell's own metric."""
    values = pd.Series(np.nan, index=cells.index, dtype=float)
    for metric in (metric for metric in JUDGED if f"{metric}_{name}" in cells):
        values = values.where(metric_of != metric, cells[f"{metric}_{name}"].astype(float))
    return values
