"""`inductor-watch nightly`: the zoo under the night's configs."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.options import db_option, measuring_options, naming_options
from jobs.selection import night_options, planned_night


@click.command(help="Measure the zoo under the night's configs, store it and show the summary.")
@night_options
@naming_options
@measuring_options
@click.option("--max-hours", type=click.FloatRange(min=0), help="Start no cell after this; the rest stays missing.")
@db_option
def command(
    suites: tuple[str, ...],
    models: tuple[str, ...],
    phases: tuple[str, ...],
    dtype: str | None,
    device: str | None,
    batch_size: int | None,
    configs: tuple[str, ...],
    branch: str | None,
    commit: str | None,
    repo: str,
    label: str,
    samples: int,
    timeout: float,
    out: Path,
    workers: int,
    no_store: bool,
    max_hours: float | None,
    database: str,
) -> None:
    """Plans, measures, stores; prints the summary table and how to look further."""
    from collector.settings import Settings
    from jobs.host import probe
    from jobs.runner import RunNames
    from jobs.session import measure_and_store

    environment = probe(device, workers)
    plan = planned_night(str(environment["device"]), suites, models, phases, dtype, batch_size, configs)
    names = RunNames(branch, commit, repo, "nightly", label)
    budget_s = float("inf") if max_hours is None else 3600 * max_hours
    settings = Settings(samples, timeout_s=timeout)
    run_id, _ = measure_and_store(
        plan, environment, names, settings, out, None if no_store else database, workers, budget_s
    )
    if no_store:
        return
    from jobs.rendering import print_summary

    print_summary(database, run_id)
    click.echo("look at it:  make dashboard   or   inductor-watch dashboard --db " + database)
    click.echo(f"compare:     inductor-watch compare latest~1 latest --db {database}")
