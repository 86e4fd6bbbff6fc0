"""`inductor-watch runs`: what the database holds, newest first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jobs.options import branch_option, db_option, json_option

if TYPE_CHECKING:
    from db.runs import NightInfo, RunInfo


@click.command(help="The nights in the database with their runs, newest first.")
@branch_option
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Nights to show.")
@db_option
@json_option
def command(branch: str | None, limit: int, database: str, as_json: bool) -> None:
    """Prints a line a night, and below it one for each of its runs where there are several; as JSON a row a run."""
    from db.engine import open_store
    from db.runs import list_nights
    from jobs.output.terminal import one_line

    nights = list_nights(open_store(database, write=False), branch=branch, limit=limit)
    if as_json:
        click.echo(json.dumps([_row(run) for night in nights for run in night.runs], indent=2))
        return
    for night in nights:
        for line in _lines(night):
            click.echo(one_line(line))
    if not nights:
        click.echo(
            f"no runs of branch {one_line(branch)!r}: see `inductor-watch runs`"
            if branch
            else "no runs: measure some with `inductor-watch nightly`, or add bundles with `inductor-watch ingest`"
        )


def _row(run: RunInfo) -> dict[str, Any]:
    return {
        "night": run.night,
        "run_id": run.run_id,
        "branch": run.branch,
        "commit": run.commit,
        "label": run.label,
        "trigger": run.trigger,
        "ci_url": run.ci_url,
        "attempt": run.attempt,
        "started_at": run.started_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "testbed_id": run.testbed_id,
        "testbed": run.testbed,
        "planned": run.planned,
        "measured": run.measured,
        "statuses": run.statuses,
    }


def _lines(night: NightInfo) -> list[str]:
    from db.runs import device_name

    newest = night.runs[0]
    what = " + ".join(dict.fromkeys(f"{run.branch}@{run.commit[:10]}" for run in night.runs))
    labels = ", ".join(dict.fromkeys(run.label for run in night.runs if run.label))
    is_alone = len(night.runs) == 1 and newest.run_id == night.night
    place = f"{night.place}{_attempt(newest) if is_alone else ''}{f' [{labels}]' if labels else ''}"
    lines = [f"{night.night}  {what}  {place}: {_counts(night)}"]
    for run in () if is_alone else night.runs:
        index = run.testbed.get("gpu_index")
        where = device_name(run.testbed) + ("" if index is None else f" {index}")
        lines.append(f"    {run.run_id}  {where}{_attempt(run)}: {_counts(run)}")
    return lines


def _attempt(run: RunInfo) -> str:
    return f", attempt {run.attempt}" if run.attempt > 1 else ""


def _counts(of: NightInfo | RunInfo) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(of.statuses.items()))
    return (counts or "nothing") + (f", {of.missing} missing" if of.missing > 0 else "")
