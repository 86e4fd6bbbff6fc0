"""The overview's chart: the change of each cell with its 95 % interval, what regressed first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from analysis.compare.verdicts import Outcome
from collector.metrics import METRICS
from dashboard.components import palette
from dashboard.components.charts import Figure
from dashboard.components.formats import count, signed
from dashboard.components.outcomes import OUTCOMES

#: The cells that it shows, in this order, and how many of them.
_ORDER = [Outcome.REGRESSED.value, Outcome.IMPROVED.value, Outcome.INCONCLUSIVE.value, Outcome.UNCHANGED.value]
_ROWS = 25
#: The change (percent) at each edge: at least, and at most, so that one wide interval does not hide the others.
_LEAST, _MOST = 2.0, 60.0
#: Pixels: a row, and what is around the rows.
_LANE, _AROUND = 22, 170
_PARTS = ("adjusted", "low", "high")


def figure(cells: pd.DataFrame) -> Figure | None:
    """The chart of the cells with the largest changes on one machine, by the metric that decided; None without an interval."""
    shown = cells[cells["comparable"] & cells["outcome"].isin(_ORDER) & cells["outcome_metric"].notna()]
    order = shown["outcome"].map(_ORDER.index).rename("order")
    shown = shown.assign(order=order).sort_values(["order", "outcome_change"], ascending=[True, False])
    several = shown["phase"].nunique() > 1
    records = [_row(record, several) for record in shown.head(4 * _ROWS).to_dict("records")]
    rows = pd.DataFrame([row for row in records if row["low"] == row["low"]][:_ROWS])
    if rows.empty:
        return None
    first = rows.iloc[0]
    low, high = (signed(first[end]) for end in ("low", "high"))
    words = f"Changes of {len(rows)} of {count(len(shown), 'cell')} with 95 % intervals; {first['cell']} from {low} to {high}"
    return Figure("intervals", _chart(rows), words)


def _row(record: Mapping[Any, Any], with_phase: bool) -> dict[str, object]:
    metric = str(record["outcome_metric"])
    change, low, high = (100 * float(record.get(f"{metric}_{part}", float("nan"))) for part in _PARTS)
    phase = f" {record['phase']}" if with_phase else ""
    name = f"{record['model']} {record['config']}{phase}: {METRICS[metric].title}"
    return {"cell": name, "change": change, "low": low, "high": high, "outcome": OUTCOMES[str(record["outcome"])]}


def _chart(rows: pd.DataFrame) -> alt.LayerChart:
    ends = rows[["change", "low", "high"]]
    edges = [max(-_MOST, min(-_LEAST, ends.min().min())), min(_MOST, max(_LEAST, ends.max().max()))]
    colors = palette.colors()
    color_of = dict(zip(_ORDER, (colors.bad, colors.series[0], palette.NEUTRAL, palette.NEUTRAL), strict=True))
    present = {OUTCOMES[name]: color for name, color in color_of.items() if OUTCOMES[name] in set(rows["outcome"])}
    scale = alt.Scale(domain=list(present), range=list(present.values()))
    base = alt.Chart(rows).encode(
        y=alt.Y("cell:N", title=None, sort=None, axis=alt.Axis(labelLimit=300, labelOverlap=False, grid=True)),
        color=alt.Color("outcome:N", scale=scale, title=None, legend=alt.Legend(orient="bottom")),
        tooltip=[
            "cell:N",
            "outcome:N",
            *(alt.Tooltip(f"{name}:Q", format="+.1f") for name in ("change", "low", "high")),
        ],
    )
    reach = alt.Scale(domain=edges, clamp=True)
    x = alt.X("low:Q", title="change in percent", scale=reach, axis=alt.Axis(tickCount=7))
    zero = alt.Chart(pd.DataFrame({"zero": [0]})).mark_rule(color=palette.NEUTRAL).encode(x="zero:Q")
    drawn = (
        zero,
        base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=55).encode(x="change:Q"),
    )
    title = alt.TitleParams("change of each cell with its 95 % interval", anchor="start", fontSize=13, fontWeight=600)
    return alt.layer(*drawn, height=_LANE * len(rows) + _AROUND, title=title)
