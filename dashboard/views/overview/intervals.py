"""The overview's chart: each change with its 95 % interval, what regressed first, drawn as in reports."""

from __future__ import annotations

from analysis.compare.cell_outcome import Outcome
from analysis.compare.comparison import Comparison
from analysis.present import percent
from analysis.reports.charts import mark, plot, short_names
from dashboard.components import palette
from dashboard.components.charts import Figure

#: The findings that it shows, in this order, and how many of them.
_ORDER = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.UNCHANGED)
_ROWS = 25
#: Pixels: a row, and what is around the rows.
_LANE, _AROUND = 22, 90


def figure(comparison: Comparison) -> Figure | None:
    """The chart of the largest changes on one machine, by the metric that tells each best; None without an interval."""
    found = [(one, finding) for one, finding in comparison.ranked_findings(_ORDER) if one.is_comparable]
    known = [(one, finding) for one, finding in found if finding.judged and finding.judged.low is not None]
    if not (shown := known[:_ROWS]):
        return None
    names = short_names([one.cell for one, _ in shown])
    marks = [mark(row, finding, "") for row, (_, finding) in enumerate(shown)]
    colors = palette.colors()
    drawn = plot(marks, names, {"worse": colors.bad, "better": colors.series[0], "calm": palette.NEUTRAL})
    drawn = drawn.properties(height=_LANE * len(names) + _AROUND)
    ends = f"{names[0]} from {percent(marks[0].low)} to {percent(marks[0].high)}"
    words = f"Changes with 95 % intervals, {len(shown)} of {len(known)}: {ends}"
    return Figure("intervals", drawn, words)
