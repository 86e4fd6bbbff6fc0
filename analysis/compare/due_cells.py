"""Which cells of a night are measured again before a change of them is named."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import CHANGES, Outcome
from analysis.compare.comparison import Comparison

#: Runs of a cell that confirm what one night says of it: no mode of single processes lasts for three.
MOST_CONFIRMATIONS = 2
#: Outcomes that a new process may take back.
_CHANGED = frozenset({*CHANGES, Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY})


def is_due(outcome: str, more_runs: float | None) -> bool:
    """Return whether one more run of each side confirms a change, or decides what is open.

    `more_runs` is how many more runs of each side the comparison asks for; None where that is not known.
    """
    if outcome in _CHANGED:
        return True
    return outcome == Outcome.INCONCLUSIVE.value and more_runs is not None and more_runs <= 1


def due_cells(comparison: Comparison, confirmed: Mapping[str, int]) -> list[CellComparison]:
    """Return the cells to measure again, in the order of their names.

    `confirmed` says how often a cell of new was measured again already, by `cell_id`: `MOST_CONFIRMATIONS` times at most.
    A cell of another testbed, or of a model that itself changed, is left out, since no run settles it.
    """
    return [
        one
        for one in comparison.cells
        if confirmed.get(one.cell.cell_id, 0) < MOST_CONFIRMATIONS
        and one.testbed_changed is False
        and not one.model_changed
        and is_due(one.outcome.value, one.more_runs)
    ]
