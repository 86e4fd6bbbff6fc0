"""One night on several hosts: the plan cut into shards of like cost, a file each, and the matrix that starts them.

Every file names the night, so that the runs of all shards belong together, whoever measures them and when. A service's
own scheduler starts the shards; this module only says what each of them is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.bundle_file import path_of
from collector.errors import BundleError, ConfigError
from collector.output_file import write_output
from collector.vocabulary import Cell
from jobs.plan.cost import CostModel
from jobs.plan.duplicate_programs import Identify, plan_work
from jobs.plan.planning import Plan
from jobs.plan.schedule import group_of, shares

#: Jobs that GitHub Actions makes of one matrix ("Usage limits").
MOST_JOBS = 256
#: The whole night beside its shards.
WHOLE = "plan.json"


class ShardError(ConfigError):
    """A plan that cannot be cut as asked."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a night for one host; `worker_s` is what its cells take one worker, in seconds, as far as is known."""

    number: int
    cells: list[Cell]
    worker_s: float

    @property
    def name(self) -> str:
        """`01`, `02`, ...: what a job and its artefacts are called."""
        return f"{self.number:02d}"

    @property
    def file(self) -> str:
        """The name of its plan's file."""
        return f"shard-{self.name}.json"

    @property
    def models(self) -> int:
        """How many models it measures; one that is measured in two phases counts once for each."""
        return len({group_of(cell) for cell in self.cells})

    def to_json(self) -> dict[str, Any]:
        """Its entry of the matrix: short texts and numbers alone."""
        minutes = round(self.worker_s / 60, 1)
        return {"shard": self.name, "plan": self.file, "cells": len(self.cells), "worker_minutes": minutes}


def cut(plan: Plan, model: CostModel, count: int, identify: Identify | None = None) -> list[Shard]:
    """At most `count` shards, the cells of a model in one phase together, each in the plan's order.

    The dearest model goes first, to the shard with the least so far (`jobs.plan.schedule.shares`); a night with fewer models
    than shards has a shard for each. A second name of a program costs nothing, as it is not measured again (`identify` as in
    `jobs.plan.duplicate_programs.plan_work`). The same plan and costs give the same shards.

    Raises:
        ShardError: more shards than a matrix may have jobs.
        ValueError: no shard.
    """
    if count > MOST_JOBS:
        raise ShardError(
            f"{count} shards, GitHub Actions starts {MOST_JOBS} jobs of a matrix: ask for fewer with --shards"
        )
    measured = plan_work(plan.cells, identify=identify).cells
    parts = [part for part in shares(measured, model, count) if part]
    place = {group_of(cell): number for number, part in enumerate(parts) for cell in part}
    whole: list[list[Cell]] = [[] for _ in parts]
    for cell in plan.cells:
        whole[place[group_of(cell)]].append(cell)
    costs = [sum(model.estimate(cell).worker_s for cell in part) for part in parts]
    return [Shard(number, cells, cost) for number, (cells, cost) in enumerate(zip(whole, costs, strict=True), start=1)]


def write_plans(folder: Path, night: str, plan: Plan, shards: Sequence[Shard]) -> None:
    """The files `shard-01.json`, ... and `plan.json`, which `nightly --plan` and `ingest --plan` read; older ones go.

    Raises:
        ShardError: the night's name cannot be that of a file.
    """
    check_night(night)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("shard-*.json"):
        old.unlink()
    said = {"measure": care} if (care := plan.care.to_json()) else {}
    for shard in shards:
        part = {"night": night, "shard": shard.number, "shards": len(shards), **said, "cells": _cells(shard.cells)}
        _write(folder / shard.file, part)
    # The whole is written last: where it is there, all of its shards are.
    whole = {"night": night, "shards": len(shards), **said, "cells": _cells(plan.cells), "left_out": plan.left_out}
    _write(folder / WHOLE, whole)


def matrix(shards: Sequence[Shard]) -> str:
    """What `strategy.matrix` takes through `fromJSON`: one line of JSON, a job a shard."""
    return json.dumps({"include": [shard.to_json() for shard in shards]}, separators=(",", ":"))


def check_night(night: str) -> str:
    """The name, if runs can be grouped and files be called by it. Raises `ShardError`."""
    try:
        path_of(Path(), night)
    except BundleError as error:
        raise ShardError(str(error).replace("run id", "night", 1)) from error
    return night


def _cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    return [cell.to_json() for cell in cells]


def _write(path: Path, data: dict[str, Any]) -> None:
    write_output(path, json.dumps(data, indent=1) + "\n")
