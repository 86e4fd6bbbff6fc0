"""The overview's chart: the change of each cell with its 95 % interval, what regressed first, drawn as in reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.compare.verdicts import Outcome
from analysis.reports.charts import Mark, plot
from analysis.reports.suites import VERDICT_LOOKS
from analysis.reports.words import called, percent
from collector.metrics import METRICS
from dashboard.components import palette
from dashboard.components.charts import Figure
from dashboard.components.formats import count

#: The cells that it shows, in this order, and how many of them.
_ORDER = [Outcome.REGRESSED.value, Outcome.IMPROVED.value, Outcome.INCONCLUSIVE.value, Outcome.UNCHANGED.value]
_ROWS = 25
#: Pixels: a row, and what is around the rows.
_LANE, _AROUND = 22, 90


def figure(cells: pd.DataFrame) -> Figure | None:
    """The chart of the cells with the largest changes on one machine, by the metric that decided; None without an interval."""
    shown = cells[cells["comparable"] & cells["outcome"].isin(_ORDER) & cells["outcome_metric"].notna()]
    order = shown["outcome"].map(_ORDER.index).rename("order")
    shown = shown.assign(order=order).sort_values(["order", "outcome_change"], ascending=[True, False])
    records = [
        record for record in shown.head(4 * _ROWS).to_dict("records") if _of(record, "low") == _of(record, "low")
    ]
    if not (records := records[:_ROWS]):
        return None
    named = ["model", "config", *(["phase"] if shown["phase"].nunique() > 1 else [])]
    names = [" ".join(str(record[name]) for name in named) for record in records]
    marks = [_mark(row, record) for row, record in enumerate(records)]
    colors = palette.colors()
    drawn = plot(marks, names, {"worse": colors.bad, "better": colors.series[0], "calm": palette.NEUTRAL})
    drawn = drawn.properties(height=_LANE * len(names) + _AROUND, title="change of each cell with its 95 % interval")
    ends = f"{names[0]} from {percent(marks[0].low)} to {percent(marks[0].high)}"
    words = f"Changes of {len(names)} of {count(len(shown), 'cell')} with 95 % intervals; {ends}"
    return Figure("intervals", drawn, words)


def _mark(row: int, record: Mapping[Any, Any]) -> Mark:
    change, low, high = (_of(record, part) for part in ("adjusted", "low", "high"))
    outcome = str(record["outcome"])
    label = f"{percent(change)} {METRICS[str(record['outcome_metric'])].title}, {called(outcome)}"
    return Mark(row, "", change, low, high, VERDICT_LOOKS.get(outcome, "calm"), label)


def _of(record: Mapping[Any, Any], part: str) -> float:
    """A part of the judgement of the metric that decided; NaN where it has none."""
    return float(record.get(f"{record['outcome_metric']}_{part}", float("nan")))
