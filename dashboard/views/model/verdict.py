"""The model page's verdict: the row of the cell in the comparison that the Compare page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.comparison import Comparison
from analysis.present import noise_line
from analysis.reports.evidence import eager_lines
from dashboard.components.changes import ChangeWords, judged
from dashboard.components.outcomes import OUTCOMES, said
from dashboard.data import Pair
from dashboard.selection import Selection
from dashboard.views.model.choice import Choice, Half
from db.errors import FilterError


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """One cell of a comparison."""

    cell: CellComparison
    comparison: Comparison

    def change(self, metric: str) -> ChangeWords | None:
        """The judged change of a metric; None where it is not judged."""
        return judged(self.cell, metric)

    @property
    def decided(self) -> str:
        """The metric that tells best what became of the cell; may be empty."""
        return (self.cell.leading.metric if self.cell.leading else None) or ""

    @property
    def sentence(self) -> str:
        """What became of the cell, and by what: `Regressed: device time +12 %.`"""
        parts = [f"{OUTCOMES[outcome].capitalize()}{detail and f': {detail}'}." for outcome, detail in said(self.cell)]
        return " ".join(parts)

    @property
    def words(self) -> str:
        """What the eager runs say, and the noise that was assumed for what is judged here; may be empty."""
        metrics = [name for name in self.comparison.noise if name in self.cell.judged]
        if not metrics:
            return ""
        eager = "".join(f"{line[:1].upper()}{line[1:]}. " for line in eager_lines(self.cell)).replace("?. ", "? ")
        line = f"{eager}{noise_line(self.comparison, metrics)} This cell's own repeats, if any, count too."
        moved = "" if self.cell.is_comparable else " The machine differs between the sides, so there is no verdict."
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
        comparison = selection.data.comparison(pair)
    except FilterError:  # two configs of one name
        return None
    found = (one for one in comparison.cells if one.cell.cell_id == measured[1].cell.cell_id)
    cell = next(found, None)
    return CellVerdict(cell, comparison) if cell else None
