"""`inductor-watch runs` and `dashboard`: what the database holds."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from db.engine import open_store
from db.nights import NightInfo, RunInfo, device_name, list_nights
from jobs.options import POSITIVE, branch_option, db_option, example, json_option
from jobs.output.terminal import one_line, print_json, print_lines
from jobs.pool.usage import usage_words


@click.command(epilog=example("runs --branch main"))
@branch_option
@click.option("--limit", type=POSITIVE, default=30, help="Nights to show.")
@db_option
@json_option
def runs_command(branch: str | None, limit: int, database: str, as_json: bool) -> None:
    """The nights in the database with their runs, newest first."""
    nights = list_nights(open_store(database, write=False), branch=branch, limit=limit, with_census=True)
    if as_json:
        print_json([{name: getattr(run, name) for name in _FIELDS} for night in nights for run in night.runs])
        return
    for night in nights:
        print_lines(_lines(night))
    if not nights:
        click.echo(
            f"no runs of branch {one_line(branch)!r}: see `inductor-watch runs`"
            if branch
            else "no runs: measure some with `inductor-watch nightly`, or add bundles with `inductor-watch ingest`"
        )


_FIELDS = (
    *("night", "run_id", "branch", "commit", "label", "trigger", "ci_url", "attempt", "started_at", "finished_at"),
    *("testbed_id", "testbed", "planned", "measured", "statuses", "usage"),
)


def _lines(night: NightInfo) -> list[str]:
    newest = night.runs[0]
    what = " + ".join(dict.fromkeys(f"{run.branch}@{run.commit[:10]}" for run in night.runs))
    labels = ", ".join(dict.fromkeys(run.label for run in night.runs if run.label))
    is_alone = len(night.runs) == 1 and newest.run_id == night.night
    origin = f"{night.place}{_attempt(newest) if is_alone else ''}{f' [{labels}]' if labels else ''}"
    lines = [f"{night.night}  {what}  {origin}: {_counts(night)}"]
    for run in () if is_alone else night.runs:
        index = run.testbed.get("gpu_index")
        where = device_name(run.testbed) + ("" if index is None else f" {index}")
        lines.append(f"    {run.run_id}  {where}{_attempt(run)}: {_counts(run)}")
    lines += [f"    used{'' if is_alone else f' by {run.run_id}'} in {_usage(run)}" for run in night.runs if run.usage]
    return lines


def _usage(run: RunInfo) -> str:
    try:
        return one_line(usage_words(run.usage or {}), 200)
    except (KeyError, TypeError, ValueError):  # of another version
        return "not known"


def _attempt(run: RunInfo) -> str:
    return f", attempt {run.attempt}" if run.attempt > 1 else ""


def _counts(of: NightInfo | RunInfo) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(of.statuses.items()))
    return (counts or "nothing") + (f", {of.missing} missing" if of.missing > 0 else "")


@click.command(epilog=example("dashboard --db inductor-watch.db"))
@db_option
@click.option("--port", type=click.IntRange(1, 65535), default=8501, help="The port on which it listens.")
def dashboard_command(database: str, port: int) -> None:
    """Open the dashboard (the same as `streamlit run dashboard/app.py`)."""
    # Found, not imported: the dashboard's modules are no part of the command line.
    spec = find_spec("dashboard")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException(
            "the dashboard is not installed: run this from a checkout of the repository, see README.md"
        )
    app = Path(spec.submodule_search_locations[0]) / "app.py"
    arguments = [sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port)]
    environment = os.environ | {"INDUCTOR_WATCH_DB": database}
    sys.stdout.flush()
    # This process becomes Streamlit: whatever ends it ends the server, and none is left behind.
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - no shell is wanted
