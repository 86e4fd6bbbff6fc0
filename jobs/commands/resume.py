"""`inductor-watch resume`: continue a run where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from jobs.options import db_option, max_hours_option, no_store_option, out_option, shared_tuning_option


@click.command(
    help="Go on with a run that was killed, interrupted or out of time; without RUN the newest unfinished one. Its bundle has "
    "all options that it began with."
)
@click.argument("run", required=False, metavar="[RUN_ID|BUNDLE]")
@out_option
@max_hours_option
@click.option("--retry-failed", is_flag=True, help="Measure failed cells again, too; the new outcome counts.")
@no_store_option
@shared_tuning_option
@db_option
def command(
    run: str | None,
    out: Path,
    budget_s: float,
    retry_failed: bool,
    no_store: bool,
    shared_tuning: str,
    database: str,
) -> None:
    """Finds the run, checks that this is its machine and its torch, measures what is left and prints the summary."""
    from jobs.pool.resuming import find_night
    from jobs.pool.session import print_night, resume_and_store
    from jobs.pool.testbeds import testbeds_of

    unfinished = find_night(out, run, retry_failed)
    if not unfinished:
        click.echo(f"nothing left to do: every planned cell {'of ' + run if run else 'in ' + str(out)} is measured")
        return
    unfinished = [replace(item, budget_s=budget_s, shared_tuning=shared_tuning) for item in unfinished]
    run_ids, _ = resume_and_store(unfinished, testbeds_of(unfinished, serve=True), None if no_store else database)
    if not no_store:
        print_night(database, run_ids)
