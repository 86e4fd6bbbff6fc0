"""The model page's verdict: what the comparison of all cells says of the two measurements that are side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.verdicts import Judgement, Outcome
from analysis.reports.evidence import eager_lines
from analysis.reports.permalinks import fixed_side as fixed
from collector.metrics import MIN_EFFECT
from dashboard.components.changes import Change, judged
from dashboard.components.noise import noise_line
from dashboard.data import Pair
from dashboard.pages.model.choice import Choice, Half
from dashboard.selection import Selection
from db.errors import FilterError
from db.queries.cells import MeasurementInfo


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
        found = self.row.get("verdict_metric")
        return found if isinstance(found, str) else ""

    @property
    def said(self) -> str:
        """What the eager runs say, the noise that was assumed for what is judged here, and what an inconclusive metric needs;
        may be empty."""
        metrics = [name for name in MIN_EFFECT if isinstance(self.row.get(f"{name}_verdict"), str)]
        if not metrics:
            return ""
        eager = "".join(f"{line[:1].upper()}{line[1:]}. " for line in self.eager).replace("?. ", "? ")
        line = (
            f"{eager}{noise_line(self.judgement, metrics)} This cell's own repeats, where it has any, are weighed in."
        )
        return line if self.comparable else f"{line} The machine is another one, or has changed: nothing is judged."


def cell_verdict(selection: Selection, choice: Choice, sides: Sequence[Half]) -> CellVerdict | None:
    """None where there are no two measurements to judge."""
    if len(sides) < 2 or any(half.found is None for half in sides):
        return None
    measured = [half.found for half in sides if half.found]
    found = _judgement(selection, choice)
    cell_id = measured[1].cell.cell_id
    if found is None or cell_id not in found.cells.index:
        return None
    row = found.cells.loc[cell_id].to_dict()
    testbeds = [set(choice.history["testbed_id"][choice.history["run_id"] == half.run_id]) for half in measured]
    same_machine = testbeds[0] == testbeds[1]
    eager = eager_lines(row | _eager_times(measured))
    return CellVerdict(row, found, same_machine and row["verdict"] != Outcome.ENVIRONMENT_CHANGED.value, tuple(eager))


def _eager_times(measured: Sequence[MeasurementInfo]) -> dict[str, float | None]:
    """The eager latency (ms) of base and new."""
    return {
        f"eager_ms_{side}": one.metrics.get("eager_ms") for side, one in zip(("base", "new"), measured, strict=True)
    }


def _judgement(selection: Selection, choice: Choice) -> Judgement | None:
    if choice.across_configs:
        try:
            side = fixed(selection.new)
            return selection.data.judgement(Pair(side, side, (choice.configs[0], choice.configs[1])))
        except FilterError:  # two configs of one name
            return None
    return None if selection.pair is None else selection.data.judgement(selection.pair)
