"""The order in which cells are measured, the GPU that measures them, and the shards of a night for several hosts.

Predictions know no process, no clock and no torch. They assume that

- a worker takes the next cell as soon as it is free (list scheduling),
- one cell at a time tunes or measures; on a CPU every other cell stands still meanwhile, on a GPU the others compile on,
- running the model overlaps with the other cells' work on the CPU completely.

The last assumption makes predictions a lower bound.

Shards are of similar cost. Every shard's file names the night, so that the runs of all shards belong together, whichever
host measures them and when. A service's own scheduler starts the shards. Cells of shards that never arrived are recorded as
missing.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.bundle import BundleContents, BundleWriter, RunHeader
from collector.device import is_accelerator
from collector.output_file import both_paths, path_of, write_output
from collector.usage_errors import BundleError, ConfigError
from collector.vocabulary import Cell
from jobs.output.terminal import several
from jobs.plan.cost import CostModel
from jobs.plan.planning import NothingToDoError, Plan, load_plan
from jobs.plan.spared_cells import TunedModel, plan_work, tuned_model
from jobs.requested_options import job_url

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from db.nights import RunInfo


#: Suite, model, phase: the cells of such a group stay on one GPU, since configs of one model are compared with each other.
Group = tuple[str, str, str]

#: A prediction is within a budget if the budget is at least this multiple of it.
_SPARE = 1.2
#: The factor by which the longest share may exceed that of the best division so that groups stay on their GPUs.
_STICKY = 1.1
#: The factor by which the predicted time of a plan with its long cells spread out may exceed that with all of them first.
_MIXED = 1.02
#: The part of a plan's time within which its long cells start: the short cells after it fill the gaps at the end.
_LONG_WITHIN = 0.8


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted seconds of a plan on one GPU, by the work on the CPU and by the time for which cells hold the device.

    `starts` has the second in which each cell starts if the CPU is the limit.
    """

    cpu_limited_s: float
    device_limited_s: float
    starts: list[float]

    @property
    def total_s(self) -> float:
        """The seconds from the first cell's start to the last cell's end: the larger of the two limits."""
        return max(self.cpu_limited_s, self.device_limited_s)

    def started_within(self, budget_s: float) -> int:
        """Return how many cells start within the budget; if the device is the limit, each start is later by the same factor."""
        stretch = self.total_s / self.cpu_limited_s if self.cpu_limited_s else 1.0
        return sum(start * stretch <= budget_s for start in self.starts)


def predict(cells: Sequence[Cell], model: CostModel, workers: int) -> Prediction:
    """Predict the time of a plan that is measured in the order of `cells`."""
    free = [0.0] * workers
    starts, shared_s, device_s, end = [], 0.0, 0.0, 0.0
    for cell in cells:
        cost = model.estimate(cell)
        # On a CPU no other cell works while one works alone: this time is added to the time that all cells share.
        alone = min(cost.alone_s or 0.0, cost.worker_s) if cell.device == "cpu" else 0.0
        start = heapq.heappop(free)
        starts.append(start + shared_s)
        shared_s += alone
        heapq.heappush(free, start + cost.worker_s - alone)
        end = max(end, start + cost.worker_s - alone)
        device_s += (cost.device_s if cell.device == "cpu" else cost.alone_s) or 0.0
    return Prediction(end + shared_s, device_s, starts)


def longest_first(cells: Sequence[Cell], model: CostModel, workers: int, budget_s: float = float("inf")) -> list[Cell]:
    """Return the cells with the longest first, so that no worker is left alone with a long cell at the end.

    Short cells come between the long ones, unless that makes the plan take longer. Then not all workers are at the longest cells
    at once, which tune most and wait for each other, and an interrupted night has more than its longest cells. The longest
    cell of a model is the model's first one, since it tunes for the others (`jobs.pool.gpu_scheduler`), and it counts with the
    longest cell that waits for it. If the budget may cut the plan short, the plan's own order is kept: it has the most
    important cells first.
    """
    chain_s = _chain_seconds(cells, model)
    ordered = sorted(cells, key=lambda cell: -chain_s[cell.cell_id])
    total_s = predict(ordered, model, workers).total_s
    if budget_s < _SPARE * total_s:
        return list(cells)
    mixed = _longest_of_each_first(_mixed(ordered, chain_s), chain_s)
    return mixed if predict(mixed, model, workers).total_s <= _MIXED * total_s else ordered


def shares(
    cells: Sequence[Cell], model: CostModel, gpus: int, sticky: Mapping[Group, int] | None = None
) -> list[list[Cell]]:
    """Divide a plan among `gpus` GPUs, and return a share for each in the plan's order; a group is in one share as a whole.

    The most expensive group is assigned first, to the GPU with the least work so far. Groups in `sticky` keep the GPU that
    measured them last, unless the longest share then gets more than a tenth longer.
    """
    costs: dict[Group, float] = defaultdict(float)
    for cell in cells:
        costs[group_of(cell)] += model.estimate(cell).worker_s
    chosen = _assign(costs, gpus, {})
    if kept := {group: gpu for group, gpu in (sticky or {}).items() if group in costs and 0 <= gpu < gpus}:
        stayed = _assign(costs, gpus, kept)
        if max(_loads(costs, gpus, stayed)) <= _STICKY * max(_loads(costs, gpus, chosen)):
            chosen = stayed
    return [[cell for cell in cells if chosen[group_of(cell)] == gpu] for gpu in range(gpus)]


def group_of(cell: Cell) -> Group:
    """Return the group of a cell; all cells of a group stay on one GPU."""
    return cell.suite, cell.model, cell.phase.value


def last_places(
    history: Iterable[BundleContents], place_of: Callable[[Mapping[str, Any]], int | None]
) -> dict[Group, int]:
    """Return, by group, the place that measured it last. `history` is newest first; `place_of` finds a testbed's place."""
    last: dict[Group, int] = {}
    for run in history:
        if (place := place_of(run.header.testbed)) is not None:
            last = {group_of(item.cell): place for item in run.measurements} | last
    return last


def _chain_seconds(cells: Sequence[Cell], model: CostModel) -> dict[str, float]:
    """Return by `cell_id` the seconds from each cell's start to the end of the cells that wait for its choices of tuning."""
    chain_s = {cell.cell_id: model.estimate(cell).worker_s for cell in cells}
    of_model: dict[TunedModel, list[str]] = defaultdict(list)
    for cell in cells:
        if is_accelerator(cell.device):
            of_model[tuned_model(cell)].append(cell.cell_id)
    for alike in of_model.values():
        first, *others = sorted(alike, key=lambda cell_id: -chain_s[cell_id])
        chain_s[first] += max((chain_s[cell_id] for cell_id in others), default=0.0)
    return chain_s


def _mixed(ordered: Sequence[Cell], chain_s: Mapping[str, float]) -> list[Cell]:
    """Return the cells with the longer ones (than the mean) spread evenly over the first four fifths of the plan's time."""
    seconds = [chain_s[cell.cell_id] for cell in ordered]
    mean = sum(seconds) / (len(seconds) or 1)
    total_s = {True: sum(took for took in seconds if took > mean) / _LONG_WITHIN}
    total_s[False] = sum(took for took in seconds if took <= mean)
    places, placed_s = [], {True: 0.0, False: 0.0}
    for took in seconds:
        places.append(placed_s[took > mean] / (total_s[took > mean] or 1.0))
        placed_s[took > mean] += took
    return [ordered[index] for index in sorted(range(len(ordered)), key=places.__getitem__)]


def _longest_of_each_first(cells: Sequence[Cell], chain_s: Mapping[str, float]) -> list[Cell]:
    """Return the cells with each group sorted, the longest cell first, within the places that the group has."""
    of_group: dict[Group, list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: -chain_s[cell.cell_id]):
        of_group[group_of(cell)].append(cell)
    in_order = {group: iter(found) for group, found in of_group.items()}
    return [next(in_order[group_of(cell)]) for cell in cells]


def _assign(costs: Mapping[Group, float], gpus: int, kept: Mapping[Group, int]) -> dict[Group, int]:
    chosen, loads = dict(kept), _loads(costs, gpus, kept)
    for group in sorted(costs.keys() - kept.keys(), key=lambda group: (-costs[group], group)):
        chosen[group] = min(range(gpus), key=loads.__getitem__)
        loads[chosen[group]] += costs[group]
    return chosen


def _loads(costs: Mapping[Group, float], gpus: int, chosen: Mapping[Group, int]) -> list[float]:
    loads = [0.0] * gpus
    for group, gpu in chosen.items():
        loads[gpu] += costs[group]
    return loads


#: The most jobs that GitHub Actions makes of one matrix ("Usage limits").
MOST_JOBS = 256
#: The file of the whole night, beside the files of its shards.
WHOLE = "plan.json"
#: The accelerator of the run that holds the cells of missing shards, also in lists of machines.
NOBODY = "never arrived"


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a night for one host; `worker_s` is the estimated time of its cells on one worker, in seconds."""

    number: int
    cells: list[Cell]
    worker_s: float

    @property
    def name(self) -> str:
        """The name of its job and artefacts: `01`, `02`, ..."""
        return f"{self.number:02d}"

    @property
    def file(self) -> str:
        """The name of its plan's file."""
        return f"shard-{self.name}.json"

    @property
    def models(self) -> int:
        """The number of models that it measures; a model that is measured in two phases counts twice."""
        return len({group_of(cell) for cell in self.cells})

    def to_json(self) -> dict[str, Any]:
        """Return its entry of the matrix, with short texts and numbers only."""
        minutes = round(self.worker_s / 60, 1)
        return {"shard": self.name, "plan": self.file, "cells": len(self.cells), "worker_minutes": minutes}


def cut(plan: Plan, model: CostModel, count: int) -> list[Shard]:
    """Cut a plan into at most `count` shards, as even as `shares` makes them, each in the plan's order.

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
    """Write `shard-01.json`, ... and `plan.json`, which `nightly --plan` and `ingest --plan` read; remove older shards."""
    plan = replace(plan, night=check_night(night))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("shard-*.json"):
        old.unlink()
    # The whole night is written last: if its file exists, the files of all shards exist.
    parts = [(shard.file, {"shard": shard.number}, replace(plan, cells=shard.cells, left_out=[])) for shard in shards]
    for name, number, part in [*parts, (WHOLE, {}, plan)]:
        data = {"shards": len(shards), **number, **part.to_json()}
        write_output(folder / name, json.dumps(data, indent=1) + "\n")


def matrix(shards: Sequence[Shard]) -> str:
    """Return the value of `strategy.matrix` for `fromJSON`: one line of JSON, with a job for each shard."""
    return json.dumps({"include": [shard.to_json() for shard in shards]}, separators=(",", ":"))


def check_night(night: str) -> str:
    """Return the name of a night. Raises `ConfigError` if it cannot name a file."""
    try:
        path_of(Path(), night)
    except BundleError as error:
        raise ConfigError(str(error).replace("run id", "night", 1)) from error
    return night


@dataclass(frozen=True, slots=True)
class Merged:
    """The state of a night: how many runs it has, how many planned cells no run took on, and the night before (or empty)."""

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
    """Return the plan of a night from its file. Raises `ConfigError` if the file holds no plan, or a plan without a night."""
    plan = load_plan(path)
    if not plan.night:
        raise ConfigError(f"{path} names no night: `inductor-watch plan --shards N` writes one that does")
    check_night(plan.night)
    return plan


def merge_night(engine: Engine, plan: Plan, folder: Path) -> Merged:
    """Record the cells of a night that no stored run has planned or measured, in a bundle in `folder` and in the store.

    A shard may arrive later: the bundle and its run are made anew each time, and removed when no cell is missing any more.

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
