"""What to measure again so that a comparison can tell: which cells, and how often."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare.ranking import ranked
from analysis.compare.results import Comparison
from analysis.compare.verdicts import Judgement, Outcome
from collector.repro import program_key
from collector.vocabulary import Cell, Config, Phase
from db.errors import counted

#: What one more run confirms or clears up.
_ONCE = (Outcome.REGRESSED, Outcome.BROKE, Outcome.FLAKY)


@dataclass(frozen=True, slots=True)
class AgainCell:
    """A cell and how many further runs of each side would settle it; `why` is its outcome."""

    name: str
    cell: Cell
    runs: int
    why: str


@dataclass(frozen=True, slots=True)
class Again:
    """The cells to measure again, most runs first, and how many others cannot be settled that way.

    `too_noisy` would need more than 50 runs, `elsewhere` were measured on another testbed (measure both sides on one),
    `missing` were planned and not measured (`resume` goes on with a night), `unreadable` have a config of another version.
    """

    cells: tuple[AgainCell, ...]
    too_noisy: int
    elsewhere: int
    missing: int
    unreadable: int

    @property
    def runs(self) -> int:
        """Runs that the cell with the most needs."""
        return max((cell.runs for cell in self.cells), default=0)

    def unsettled(self) -> list[str]:
        """A sentence for each reason why further runs settle nothing."""
        reasons = {
            "would take more than 50 further runs: lower the noise instead": self.too_noisy,
            "measured on different testbeds: measure both sides on one": self.elsewhere,
            "missing: inductor-watch resume goes on with a night that was cut short": self.missing,
            "with a config that this version cannot read, or that names a program": self.unreadable,
        }
        return [f"{counted(count, 'cell')} {reason}" for reason, count in reasons.items() if count]

    def to_plan(self) -> dict[str, Any]:
        """A plan as `plan --json` writes it, with `runs`: how often each cell is to be measured, by `cell_id`."""
        return {
            "cells": [item.cell.to_json() for item in self.cells],
            "left_out": [],
            "runs": {item.cell.cell_id: item.runs for item in self.cells},
        }

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        cells = [
            {"cell_id": item.cell.cell_id, "cell": item.name, "runs": item.runs, "why": item.why} for item in self.cells
        ]
        left = {name: getattr(self, name) for name in ("too_noisy", "elsewhere", "missing", "unreadable")}
        return {"cells": cells, "runs": self.runs, **left}


#: Where no further run settles anything.
NOTHING_AGAIN = Again((), 0, 0, 0, 0)


def find_again(comparison: Comparison, judgement: Judgement, configs: Mapping[str, Config]) -> Again:
    """Inconclusive cells with the runs that their verdict asks for; what regressed, broke or is flaky once more.

    `judgement` is of the comparison's cells, `configs` are the requests by `config_id`.
    """
    counts = {"too_noisy": 0, "elsewhere": 0, "missing": 0, "unreadable": 0}
    cells = []
    for row in ranked(comparison, judgement, tuple(Outcome)).to_dict("records"):
        runs, left = _runs(row)
        if left:
            counts[left] += 1
        elif runs and (row["config_id"] not in configs or program_key(configs[row["config_id"]])):
            counts["unreadable"] += 1
        elif runs:
            cells.append(AgainCell(str(row["cell"]), cell_of(row, configs), runs, str(row["verdict"])))
    return Again(tuple(sorted(cells, key=lambda item: (-item.runs, item.name))), **counts)


def cell_of(row: Mapping[Any, Any], configs: Mapping[str, Config]) -> Cell:
    """The collector's value of a compared cell."""
    names = (str(row["suite"]), str(row["model"]), Phase(row["phase"]), str(row["dtype"]), str(row["device"]))
    return Cell(*names, int(row["batch_size"]), configs[row["config_id"]])


def _runs(row: Mapping[Any, Any]) -> tuple[int, str]:
    """How often a cell is to be measured again, or the word for why that does not help; 0 and nothing: no need."""
    verdict = row["verdict"]
    if verdict == Outcome.MISSING:
        return 0, "missing"
    if row["model_changed"]:
        return 0, ""  # of which nothing can be told
    if verdict == Outcome.ENVIRONMENT_CHANGED or (verdict == Outcome.INCONCLUSIVE and row["testbed_changed"] is True):
        return 0, "elsewhere"
    if verdict in _ONCE:
        return 1, ""
    if verdict != Outcome.INCONCLUSIVE:
        return 0, ""
    # By the metric that the cell is shown by, as `compare` prints it.
    needed = row[f"{row['by']}_more_runs"]
    if math.isnan(needed):
        return 1, ""  # nothing is known of the noise: a second run is where that begins
    # At the limit the interval is narrow enough, and one more run moves the estimate.
    return (0, "too_noisy") if needed == float("inf") else (max(1, int(needed)), "")
