"""The model page's verdict: the row of the cell in the comparison that the Compare page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.verdicts import Judgement
from analysis.reports.evidence import eager_lines
from collector.metrics import MIN_EFFECT
from dashboard.components.changes import Change, judged, noise_line
from dashboard.components.outcomes import said
from dashboard.data import Pair
from dashboard.selection import Selection
from dashboard.views.model.choice import Choice, Half
from db.errors import FilterError
from db.queries.filters import EVERYTHING


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """The row of one cell in `Data.judged`, and the judgement of all cells."""

    row: Mapping[Any, Any]
    judgement: Judgement

    def change(self, metric: str) -> Change | None:
        """The judged change of a metric; None where it is not judged."""
        return judged(metric, self.row, comparable=bool(self.row["comparable"]))

    @property
    def decided(self) -> str:
        """The metric that the cell's verdict hangs on; may be empty."""
        metric = self.row.get("verdict_metric")
        return metric if isinstance(metric, str) else ""

    @property
    def sentence(self) -> str:
        """What became of the cell, and by what: `Regressed: compiled latency +12 %.`"""
        word, detail = said(self.row)
        return f"{word[:1].upper()}{word[1:]}{f': {detail}' if detail else ''}."

    @property
    def words(self) -> str:
        """What the eager runs say, and the noise that was assumed for what is judged here; may be empty."""
        metrics = [name for name in MIN_EFFECT if isinstance(self.row.get(f"{name}_verdict"), str)]
        if not metrics:
            return ""
        eager = "".join(f"{line[:1].upper()}{line[1:]}. " for line in eager_lines(self.row)).replace("?. ", "? ")
        line = f"{eager}{noise_line(self.judgement, metrics)} This cell's own repeats, if any, count too."
        moved = "" if self.row["comparable"] else " The machine differs between the sides, so there is no verdict."
        return line + moved


def cell_verdict(selection: Selection, choice: Choice, halves: Sequence[Half]) -> CellVerdict | None:
    """None where there are no two measurements to judge."""
    measured = [half.measured for half in halves if half.measured]
    pair = selection.pair
    if choice.across_configs:
        pair = Pair(selection.fixed_new, selection.fixed_new, (choice.configs[0], choice.configs[1]))
    if pair is None or len(measured) < 2:
        return None
    try:
        cells = selection.data.judged(pair, EVERYTHING)
    except FilterError:  # two configs of one name
        return None
    rows = cells[cells["cell_id"] == measured[1].cell.cell_id].to_dict("records")
    return CellVerdict(rows[0], selection.data.judgement(pair)) if rows else None
