"""`inductor-watch nightly`: the zoo under the night's configs."""

from __future__ import annotations

from pathlib import Path

import click

from jobs.options import db_option, measuring_options, naming_options
from jobs.plan import read_plan
from jobs.selection import night_options, planned_night


@click.command(help="Measure the zoo under the night's configs, store it and show the summary.")
@night_options
@naming_options
@measuring_options
@click.option("--max-hours", type=click.FloatRange(min=0), help="Start no cell after this; the rest stays missing.")
@click.option("--tune-together", is_flag=True, help="Let several cells autotune at once: faster, choices less certain.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure the cells of this file, in its order, as `plan --json` writes them.",
)
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
    tune_together: bool,
    plan_file: Path | None,
    database: str,
) -> None:
    """Plans, measures, stores; prints the summary table and how to look further."""
    from collector.settings import Settings
    from jobs.host import probe
    from jobs.runner import Pace, RunNames
    from jobs.session import measure_and_store

    environment = probe(device, workers)
    place = str(environment["device"])
    night = (place, suites, models, phases, dtype, batch_size, configs)
    plan = read_plan(plan_file) if plan_file else planned_night(*night)
    names = RunNames(branch, commit, repo, "nightly", label)
    pace = Pace(workers, float("inf") if max_hours is None else 3600 * max_hours, tune_together)
    settings = Settings(samples, timeout_s=timeout)
    run_id, _ = measure_and_store(plan, environment, names, settings, out, None if no_store else database, pace)
    if no_store:
        return
    from jobs.rendering import print_summary

    print_summary(database, run_id)
    click.echo("look at it:  make dashboard   or   inductor-watch dashboard --db " + database)
    click.echo(f"compare:     inductor-watch compare latest~1 latest --db {database}")
