"""What to measure again so that a comparison can tell, and the command that measures a cell again as a run did."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.comparison import Comparison
from analysis.compare.findings import Outcome
from collector.code import NAME_OF_SOURCE
from collector.repro import program_key, repro_command
from collector.vocabulary import Cell, Config, Phase
from db.nights import RunInfo, find_runs
from db.queries.cells import CellName
from db.queries.details import environment
from db.queries.details import measurement as stored_measurement
from db.schema import Run
from db.store_errors import counted

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


def find_again(comparison: Comparison, configs: Mapping[str, Config]) -> Again:
    """Inconclusive cells with the runs that their verdict asks for; what regressed, broke or is flaky once more.

    `configs` are the requests by `config_id`.
    """
    counts = {"too_noisy": 0, "elsewhere": 0, "missing": 0, "unreadable": 0}
    cells = []
    for row in comparison.cells:
        runs, left = _runs(row)
        config_id = row.cell.config_id
        if left:
            counts[left] += 1
        elif runs and (config_id not in configs or program_key(configs[config_id])):
            counts["unreadable"] += 1
        elif runs:
            cells.append(AgainCell(str(row.cell), cell_of(row.cell, configs), runs, row.outcome.value))
    return Again(tuple(sorted(cells, key=lambda item: (-item.runs, item.name))), **counts)


def cell_of(name: CellName, configs: Mapping[str, Config]) -> Cell:
    """Return the collector's value of a compared cell."""
    axes = name.suite, name.model, Phase(name.phase), name.dtype, name.device, name.batch_size
    return Cell(*axes, configs[name.config_id])


def _runs(row: CellComparison) -> tuple[int, str]:
    """How often a cell is to be measured again, or the word for why that does not help; 0 and nothing: no need."""
    if row.outcome.verdict is Outcome.MISSING:
        return 0, "missing"
    if row.model_changed:
        return 0, ""  # of which nothing can be told
    if row.outcome is Outcome.ENVIRONMENT_CHANGED or (row.outcome is Outcome.INCONCLUSIVE and row.testbed_changed):
        return 0, "elsewhere"
    if row.outcome in _ONCE:
        return 1, ""
    if row.outcome is not Outcome.INCONCLUSIVE:
        return 0, ""
    needed = row.more_runs
    if needed is None:
        return 1, ""  # nothing is known of the noise: a second run is where that begins
    # At the limit the interval is narrow enough, and one more run moves the estimate.
    return (0, "too_noisy") if needed == float("inf") else (max(1, int(needed)), "")


#: The switches of `collector.settings` with their defaults, and the optimizers of `collector.settings` that a
#: step can end with: both modules import torch, which reports and pages do without.
SWITCHES = {"tf32_matmul": True, "tf32_cudnn": True, "reduced_math_attention": True, "cudnn_benchmark": False}
STEPPED_BY = ("sgd", "adam")
_SHA = re.compile(r"[0-9a-fA-F]{6,40}")
#: What a check chooses itself.
_OF_A_RUN = re.compile(r" --(?:source|shared-tuning) \S+")


def repro_as(cell: Cell, run: RunInfo | None, used: Mapping[str, Any]) -> str:
    """Return the command for a cell with the options that `run` was given, `used` being its environment.

    `pytorch` stands for a clone of the repository, `tuning` for a folder. A command that cannot be given stays a comment.
    """
    command = repro_command(cell)
    if run is None or command.startswith("#"):
        return command
    words = ["--source", f"pytorch@{run.commit}"] if used.get(NAME_OF_SOURCE) and _SHA.fullmatch(run.commit) else []
    words += ["--shared-tuning", "tuning"] if run.testbed.get("tuning") == "shared" else []
    flags = run.testbed.get("flags")
    if isinstance(flags, str):
        states = {name: name in flags.split() for name in SWITCHES}
        changed = (f"{name}={'on' if is_on else 'off'}" for name, is_on in states.items() if is_on != SWITCHES[name])
        words += [word for flag in changed for word in ("--flag", flag)]
    optimizer = run.testbed.get("optimizer")
    words += ["--optimizer", optimizer] if optimizer in STEPPED_BY else []
    return f"{command} {shlex.join(words)}" if words else command


def stored_repro(conn: Connection, cell: Cell, run_id: str | None) -> str:
    """Return the command for a cell as a stored run measured it; without options where the run is not stored."""
    runs = find_runs(conn, Run.run_id == run_id) if run_id else []
    measured = stored_measurement(conn, run_id, cell.cell_id) if run_id and runs else None
    used = environment(conn, measured.environment_id) if measured and measured.environment_id else None
    return repro_as(cell, runs[0] if runs else None, used or {})


def as_check(command: str, check: str) -> str:
    """Return the command with `check` in place of `inductor-watch run`, without what a check chooses itself."""
    return _OF_A_RUN.sub("", command).replace("inductor-watch run", check, 1)
