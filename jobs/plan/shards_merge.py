"""The shards of a night put together: what of its plan never arrived is recorded as missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from sqlalchemy import Engine

from collector.bundle import BundleWriter, RunHeader
from collector.bundle_file import both_paths, path_of
from collector.vocabulary import Cell
from db.ingest import ingest_bundle
from db.queries.missing_cells import drop_promises, previous_night, taken_on
from db.runs import RunInfo
from jobs.github.ci import job_url
from jobs.plan.planning import Plan, PlanError
from jobs.plan.shards import check_night

#: What the run of cells that nobody took on has for a machine, in lists of machines too.
NOBODY = "never arrived"


class NothingArrivedError(click.ClickException):
    """No shard of the night is there: nothing can be said of it."""

    exit_code = 3


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
        arrived = f"night {self.night}: {self.runs} run{'s' * (self.runs != 1)} of {self.planned} planned cells"
        if not self.lost:
            return f"{arrived}, all of them taken on"
        return f"{arrived}; {self.lost} cells never arrived and count as missing ({self.bundle})"


def night_of(plan: Plan, path: Path) -> str:
    """The night that a plan is of. Raises `PlanError` if its file names none."""
    if not plan.night:
        raise PlanError(f"{path} names no night: `inductor-watch plan --shards N` writes one that does")
    return check_night(plan.night)


def merge_night(engine: Engine, plan: Plan, folder: Path) -> Merged:
    """Records what of a night's whole plan no stored run has planned or measured, in a bundle in `folder` and in the store.

    The shards' bundles are stored already. A shard that arrives later is measured then, not missing: the bundle and its
    run are made anew each time, and are gone when nothing is missing any more.

    Raises:
        NothingArrivedError: no run of the night is stored.
        StoreError: the database cannot be written.
    """
    run_id = f"{plan.night}-absent"
    found = taken_on(engine, plan.night, besides=run_id)
    if not found.runs:
        raise NothingArrivedError(f"no shard of night {plan.night} arrived: see the jobs that were to measure it")
    lost = [cell for cell in plan.cells if cell.cell_id not in found.cells]
    drop_promises(engine, run_id, unless=[cell.cell_id for cell in lost])
    path = _rewrite(folder, run_id, found.runs, lost)
    if path:
        ingest_bundle(engine, path)
    return Merged(plan.night, len(found.runs), len(plan.cells), len(lost), path, previous_night(engine, plan.night))


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
