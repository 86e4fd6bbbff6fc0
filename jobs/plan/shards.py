"""One night on several hosts: the plan cut into shards of similar cost, and put together from the shards' bundles.

Every shard's file names the night, so that the runs of all shards belong together, whichever host measures them and when.
A service's own scheduler starts the shards. Cells of shards that never arrived are recorded as missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.bundle import BundleWriter, RunHeader
from collector.bundle_file import both_paths, path_of
from collector.output_file import write_output
from collector.usage_errors import BundleError, ConfigError
from collector.vocabulary import Cell
from jobs.ci import job_url
from jobs.output.terminal import several
from jobs.plan.cost import CostModel
from jobs.plan.planning import NothingToDoError, Plan, load_plan
from jobs.plan.schedule import group_of, shares
from jobs.plan.spared_cells import plan_work

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from db.nights import RunInfo

#: Jobs that GitHub Actions makes of one matrix ("Usage limits").
MOST_JOBS = 256
#: The whole night beside its shards.
WHOLE = "plan.json"
#: The accelerator of the run that holds the cells of missing shards, also in lists of machines.
NOBODY = "never arrived"


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


def cut(plan: Plan, model: CostModel, count: int) -> list[Shard]:
    """At most `count` shards as even as `jobs.plan.schedule.shares` makes them, each in the plan's order.

    A model in one phase stays in one shard. A duplicate of a program costs nothing, as it is not measured again. The same
    plan and costs give the same shards.
    """
    measured = plan_work(plan.cells).cells
    parts = [part for part in shares(measured, model, count) if part]
    number_of = {group_of(cell): number for number, part in enumerate(parts) for cell in part}
    whole: list[list[Cell]] = [[] for _ in parts]
    for cell in plan.cells:
        whole[number_of[group_of(cell)]].append(cell)
    costs = [sum(model.estimate(cell).worker_s for cell in part) for part in parts]
    return [Shard(number, cells, cost) for number, (cells, cost) in enumerate(zip(whole, costs, strict=True), start=1)]


def write_plans(folder: Path, night: str, plan: Plan, shards: Sequence[Shard]) -> None:
    """Writes `shard-01.json`, ... and `plan.json`, which `nightly --plan` and `ingest --plan` read; removes older ones."""
    plan = replace(plan, night=check_night(night))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("shard-*.json"):
        old.unlink()
    # The whole is written last: where it exists, all of its shards do.
    parts = [(shard.file, {"shard": shard.number}, replace(plan, cells=shard.cells, left_out=[])) for shard in shards]
    for name, number, part in [*parts, (WHOLE, {}, plan)]:
        data = {"shards": len(shards), **number, **part.to_json()}
        write_output(folder / name, json.dumps(data, indent=1) + "\n")


def matrix(shards: Sequence[Shard]) -> str:
    """What `strategy.matrix` takes through `fromJSON`: one line of JSON, a job a shard."""
    return json.dumps({"include": [shard.to_json() for shard in shards]}, separators=(",", ":"))


def check_night(night: str) -> str:
    """The name, if runs can be grouped and files be called by it. Raises `ConfigError`."""
    try:
        path_of(Path(), night)
    except BundleError as error:
        raise ConfigError(str(error).replace("run id", "night", 1)) from error
    return night


@dataclass(frozen=True, slots=True)
class Merged:
    """A night as it stands: its runs, the cells of the plan that none of them took on, and the night before (or empty)."""

    night: str
    runs: int
    planned: int
    lost: int
    bundle: Path | None
    base: str

    def __str__(self) -> str:
        arrived = f"night {self.night}: {several(self.runs, 'run')} of {self.planned} planned cells"
        if not self.lost:
            return f"{arrived}, all of them taken on"
        return f"{arrived}; {self.lost} cells never arrived and count as missing ({self.bundle})"


def load_night(path: Path) -> Plan:
    """The plan of a night. Raises `ConfigError` if there is none in the file, or it names no night."""
    plan = load_plan(path)
    if not plan.night:
        raise ConfigError(f"{path} names no night: `inductor-watch plan --shards N` writes one that does")
    check_night(plan.night)
    return plan


def merge_night(engine: Engine, plan: Plan, folder: Path) -> Merged:
    """Records the cells of a night that no stored run has planned or measured, in a bundle in `folder` and in the store.

    A shard may arrive later: the bundle and its run are made anew each time, and removed when nothing is missing any more.

    Raises:
        NothingToDoError: no run of the night is stored.
        StoreError: the database cannot be written.
    """
    from db.ingest import ingest_bundle
    from db.queries.side_rows import drop_promises, taken_on
    from db.queries.sides import previous_night

    run_id = f"{plan.night}-absent"
    arrived = taken_on(engine, plan.night, besides=run_id)
    if not arrived.runs:
        raise NothingToDoError(f"no shard of night {plan.night} arrived: see the jobs that were to measure it")
    lost = [cell for cell in plan.cells if cell.cell_id not in arrived.cells]
    drop_promises(engine, run_id, unless=[cell.cell_id for cell in lost])
    path = _rewrite(folder, run_id, arrived.runs, lost)
    if path:
        ingest_bundle(engine, path)
    return Merged(plan.night, len(arrived.runs), len(plan.cells), len(lost), path, previous_night(engine, plan.night))


def _rewrite(folder: Path, run_id: str, runs: Sequence[RunInfo], lost: Sequence[Cell]) -> Path | None:
    for old in both_paths(path_of(folder, run_id)):
        old.unlink(missing_ok=True)
    if not lost:
        return None
    first = runs[-1]
    header = RunHeader(
        run_id=run_id,
        branch=first.branch,
        commit=first.commit,
        testbed={"accelerator": NOBODY, "device": lost[0].device},
        started_at=first.started_at.isoformat(),
        repo=first.repo,
        trigger=first.trigger,
        label=first.label,
        tool_version=first.tool_version,
        night=first.night,
        ci_url=job_url(),
    )
    return BundleWriter(folder, header, lost).close(first.started_at.isoformat())
