"""A plan from start to end: measure, close the bundle, put it into the store, show what came out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from collector.bundle import BundleWriter
from collector.settings import Settings
from jobs.cli import tool_version
from jobs.host import cell_variables
from jobs.plan import Plan
from jobs.progress import RunProgress
from jobs.runner import Pace, RunNames, make_header, measure_plan


class NothingPlannedError(click.ClickException):
    """The selection leaves no cell to measure."""

    exit_code = 3


def measure_and_store(
    plan: Plan,
    environment: dict[str, Any],
    names: RunNames,
    settings: Settings,
    folder: Path,
    database: str | None,
    pace: Pace,
) -> tuple[str, RunProgress]:
    """Measures a plan, stores it, and returns the run's id and the progress with its counts.

    The database is opened before anything is measured, so that a folder that cannot be written is known at once.
    Without a database the bundle is all there is.

    Raises:
        NothingPlannedError: the plan is empty.
    """
    require_cells(plan)
    store = _open(database) if database else None
    header = make_header(environment, names, tool_version())
    writer = BundleWriter(folder, header)
    console = Console()
    announce(console, plan, header.run_id, header.branch, header.commit, environment)
    variables = cell_variables()
    with RunProgress(console, len(plan.cells)) as progress:
        path = measure_plan(plan, writer, environment, settings, progress.took, variables, pace)
    console.print(f"bundle {path}", highlight=False, soft_wrap=True)
    if store:
        console.print(f"database {database}: {store(path)} measurements stored", highlight=False, soft_wrap=True)
    return header.run_id, progress


def _open(database: str) -> Callable[[Path], int]:
    from db.engine import open_store
    from db.ingest import ingest_bundle

    engine = open_store(database, write=True)
    return lambda path: ingest_bundle(engine, path).new


def require_cells(plan: Plan) -> None:
    """Raises `NothingPlannedError`, with the reasons, for an empty plan."""
    if not plan.cells:
        reasons = "; ".join(plan.left_out[:3]) or "no model matches"
        raise NothingPlannedError(f"nothing to measure: {reasons} (see `inductor-watch zoo`)")


def announce(console: Console, plan: Plan, run_id: str, branch: str, commit: str, environment: dict[str, Any]) -> None:
    """Says what is about to be measured, on what, and what was left out."""
    place = environment.get("gpu") or f"{environment['cpu']}, {environment['cores']} cores"
    console.print(
        f"run {run_id}: {len(plan.cells)} cells on {place}, torch {environment['torch']}, {branch}@{commit[:10]}",
        highlight=False,
        soft_wrap=True,
    )
    for line in plan.left_out:
        console.print(f"left out: {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
