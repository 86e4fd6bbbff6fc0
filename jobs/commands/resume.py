"""`inductor-watch resume`: go on with a run where it stopped."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.option_groups import max_hours_option, no_store_option, out_option
from jobs.options import db_option, sharing_option


@click.command(
    help="Go on with a run that was killed, interrupted or out of time; without RUN the newest unfinished one."
)
@click.argument("run", required=False, metavar="[RUN_ID|BUNDLE]")
@out_option
@max_hours_option
@click.option("--retry-failed", is_flag=True, help="Measure failed cells again, too; the new outcome counts.")
@no_store_option
@sharing_option
@db_option
def command(
    run: str | None,
    out: Path,
    max_hours: float | None,
    retry_failed: bool,
    no_store: bool,
    database: str,
) -> None:
    """Finds the run, sees that this is its machine and its torch, measures what is left and prints the summary."""
    from jobs.pool.requested_options import asked_pace
    from jobs.pool.resuming import asked_of, find_night
    from jobs.pool.session import print_night, resume_and_store
    from jobs.pool.testbeds import testbeds_of

    found = find_night(out, run, retry_failed)
    if not found:
        click.echo(f"nothing left to do: every planned cell {'of ' + run if run else 'in ' + str(out)} is measured")
        return
    budget_s = float("inf") if max_hours is None else 3600 * max_hours
    paces = [asked_pace(asked_of(one), budget_s) for one in found]
    runs, _ = resume_and_store(found, testbeds_of(found, paces, serve=True), None if no_store else database)
    if not no_store:
        print_night(database, runs)
