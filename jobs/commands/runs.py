"""`inductor-watch runs`: what the database holds, newest first."""

from __future__ import annotations

import json

import click

from jobs.options import db_option, json_option


@click.command(help="The runs in the database, newest first.")
@click.option("--branch", help="Only runs of this branch.")
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True)
@db_option
@json_option
def command(branch: str | None, limit: int, database: str, as_json: bool) -> None:
    """Prints one line a run: id, branch and commit, cells by status."""
    from db.engine import open_store
    from db.queries import list_runs

    runs = list_runs(open_store(database, write=False), branch=branch, limit=limit)
    if as_json:
        rows = [{"run_id": run.run_id, "branch": run.branch, "commit": run.commit, "label": run.label} for run in runs]
        counts = [{"planned": run.planned, "measured": run.measured, "statuses": run.statuses} for run in runs]
        click.echo(json.dumps([row | count for row, count in zip(rows, counts, strict=True)], indent=2))
        return
    for run in runs:
        counts_text = ", ".join(f"{count} {status}" for status, count in sorted(run.statuses.items()))
        missing = f", {run.planned - run.measured} missing" if run.planned > run.measured else ""
        label = f" [{run.label}]" if run.label else ""
        place = run.testbed.get("gpu") or run.testbed.get("cpu") or ""
        click.echo(f"{run.run_id}  {run.branch}@{run.commit[:10]}  {place}{label}: {counts_text or 'nothing'}{missing}")
    if not runs:
        click.echo("no runs: measure some with `inductor-watch nightly`, or ingest bundles")
