"""`inductor-watch run`: some cells, now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jobs.options import (
    build_configs,
    config_options,
    db_option,
    measuring_options,
    naming_options,
    parse_phases,
    selection_options,
)


@click.command(help="Measure some cells now, store them and show them.")
@selection_options
@config_options
@naming_options
@measuring_options
@db_option
@click.option("--fail", is_flag=True, help="Exit with 1 if a cell fails.")
def command(
    suites: tuple[str, ...],
    models: tuple[str, ...],
    phases: tuple[str, ...],
    dtype: str | None,
    device: str | None,
    batch_size: int | None,
    branch: str | None,
    commit: str | None,
    base: str,
    repo: str,
    label: str,
    samples: int,
    timeout: float,
    out: Path,
    workers: int,
    start: str,
    gpus: str | None,
    no_store: bool,
    database: str,
    fail: bool,
    **config: Any,
) -> None:
    """Plans what the options select, measures it and prints one line a cell."""
    from collector.settings import Settings
    from jobs.night import default_dtype, join
    from jobs.plan import Matrix, make_plan
    from jobs.runner import Pace, RunNames
    from jobs.session import measure_and_store
    from jobs.testbeds import device_of, find_testbeds

    if not suites and not models:
        raise click.UsageError(
            "name what to measure: --model NAME (see `inductor-watch zoo`), or --suite NAME for all of one"
        )
    configs = build_configs(**config)
    testbeds = find_testbeds(device, Pace(workers, start=start, gpus=gpus))
    place = device_of(testbeds)
    matrices = [
        Matrix(place, dtype or default_dtype(place, phase), configs, suites, models, (), (phase,), batch_size)
        for phase in parse_phases(phases)
    ]
    plan = join(make_plan(matrix) for matrix in matrices)
    names = RunNames(branch, commit, repo, "adhoc", label, branch_start=base)
    settings = Settings(rounds=samples, timeout_s=timeout)
    _, progress = measure_and_store(plan, testbeds, names, settings, out, None if no_store else database)
    if not no_store:
        from db.engine import shown

        click.echo(f"look at it: inductor-watch compare latest~1 latest --db {shown(database)}")
    if fail and progress.failing:
        raise SystemExit(1)
