"""The model page's verdict: what the comparison of all cells says of the two measurements that are side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.verdicts import Judgement, Outcome
from analysis.reports.evidence import eager_lines
from collector.metrics import MIN_EFFECT
from dashboard.components.changes import Change, judged, noise_line
from dashboard.data import Pair
from dashboard.selection import Selection
from dashboard.views.model.choice import Choice, Half
from db.errors import FilterError


@dataclass(frozen=True, slots=True)
class CellVerdict:
    """The row of one cell in a judgement; `comparable` is false where the machine is not the same on both sides.

    `eager` is what the eager runs of the two measurements say, a line each.
    """

    row: Mapping[Any, Any]
    judgement: Judgement
    comparable: bool
    eager: tuple[str, ...] = ()

    def change(self, metric: str) -> Change | None:
        """The judged change of a metric; None where it is not judged."""
        return judged(metric, self.row, comparable=self.comparable)

    @property
    def decided(self) -> str:
        """The metric that the cell's verdict hangs on; may be empty."""
        metric = self.row.get("verdict_metric")
        return metric if isinstance(metric, str) else ""

    @property
    def words(self) -> str:
        """What the eager runs say, and the noise that was assumed for what is judged here; may be empty."""
        metrics = [name for name in MIN_EFFECT if isinstance(self.row.get(f"{name}_verdict"), str)]
        if not metrics:
            return ""
        eager = "".join(f"{line[:1].upper()}{line[1:]}. " for line in self.eager).replace("?. ", "? ")
        noise = noise_line(self.judgement, metrics)
        line = f"{eager}{noise} This cell's own repeats, where it has any, are weighed in."
        return line if self.comparable else f"{line} The machine is another one, or has changed: nothing is judged."


def cell_verdict(selection: Selection, choice: Choice, halves: Sequence[Half]) -> CellVerdict | None:
    """None where there are no two measurements to judge."""
    measured = [half.measured for half in halves if half.measured]
    judgement = _judgement(selection, choice) if len(measured) == 2 else None
    if judgement is None or measured[1].cell.cell_id not in judgement.cells.index:
        return None
    row = judgement.cells.loc[measured[1].cell.cell_id].to_dict()
    history = choice.history
    testbeds = [set(history["testbed_id"][history["run_id"] == each.run_id]) for each in measured]
    comparable = testbeds[0] == testbeds[1] and row["verdict"] != Outcome.ENVIRONMENT_CHANGED.value
    eager = {f"eager_ms_{half.role}": half.measured.metrics.get("eager_ms") for half in halves if half.measured}
    return CellVerdict(row, judgement, comparable, tuple(eager_lines(row | eager)))


def _judgement(selection: Selection, choice: Choice) -> Judgement | None:
    pair = selection.pair
    if choice.across_configs:
        pair = Pair(selection.fixed_new, selection.fixed_new, (choice.configs[0], choice.configs[1]))
    try:
        return selection.data.judgement(pair) if pair else None
    except FilterError:  # two configs of one name
        return None
