"""A plan that says how often each cell is to be measured: the file of `report --again-plan`, and the runs that it makes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs.plan.planning import Plan, PlanError, read_plan

#: No cell is asked for more often: `analysis.stats.verdicts` advises no more.
MOST_RUNS = 50


def read_again(path: Path, place: str) -> tuple[Plan, dict[str, int]]:
    """The plan in a file and the runs that it wants of each cell, by `cell_id`; one where it does not say.

    Raises:
        PlanError: no such plan, or numbers of runs that are none.
    """
    plan = read_plan(path, place)
    told = json.loads(path.read_text()).get("runs", {})
    if not isinstance(told, dict) or not all(type(runs) is int and 0 < runs <= MOST_RUNS for runs in told.values()):
        raise PlanError(
            f"{path}: `runs` gives a cell_id a number from 1 to {MOST_RUNS}: write it with `report --again-plan`"
        )
    return plan, {cell.cell_id: told.get(cell.cell_id, 1) for cell in plan.cells}


def rounds(plan: Plan, runs: Mapping[str, int], most: int) -> Iterator[Plan]:
    """A plan for each run: the first has every cell, later ones those that want that many; `most` runs at the most.

    Runs and not replicates of one run: what differs from run to run is what a verdict must know.
    """
    for number in range(min(most, max(runs.values(), default=0))):
        cells = [cell for cell in plan.cells if runs[cell.cell_id] > number]
        yield Plan(cells, [] if number else plan.left_out, care=plan.care)
