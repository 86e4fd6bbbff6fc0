"""`inductor-watch run`: some cells, now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from jobs.options import (
    build_configs,
    config_options,
    db_option,
    measuring_options,
    more_measuring_options,
    naming_options,
    parse_phases,
    selection_options,
)


@click.command(
    help="Measure some cells now, store them and show them. With --again the cells that a report names: FILE, as `report "
    "--again-plan` writes it, or those of the comparison of BASE with NEW [latest~1 latest]."
)
@click.argument("named", nargs=-1, metavar="[FILE | BASE NEW]")
@click.option("--again", is_flag=True, help="Measure again what a comparison left open, in as many runs as it takes.")
@click.option(
    "--most-runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs that --again makes at the most."
)
@selection_options
@config_options
@naming_options
@measuring_options
@more_measuring_options
@db_option
@click.option("--fail", is_flag=True, help="Exit with 1 if a cell fails.")
def command(
    named: tuple[str, ...],
    again: bool,
    most_runs: int,
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
    precision: float | None,
    warm_compile: bool,
    replicates: int,
    trace: Path | None,
    database: str,
    fail: bool,
    **config: Any,
) -> None:
    """Plans what the options select, measures it and prints one line a cell."""
    from collector.settings import Settings
    from collector.tracing import VARIABLE as TRACE
    from collector.vocabulary import Config
    from jobs.again_run import Rounds, check_words, plans_again
    from jobs.night import default_dtype, join
    from jobs.plan import Matrix, make_plan
    from jobs.runner import Pace, RunNames, new_run_id
    from jobs.session import measure_and_store
    from jobs.testbeds import device_of, find_testbeds

    configs = build_configs(**config)
    if again and replicates > 1:
        raise click.UsageError("--again knows how often each cell needs measuring: leave out --replicates")
    check_words(named, again, is_selected=any((suites, models, phases, dtype, batch_size)) or configs != [Config()])
    if not again and not suites and not models:
        raise click.UsageError(
            "name what to measure: --model NAME (see `inductor-watch zoo`) or module:function, or --suite NAME for all of one"
        )
    if trace:
        os.environ[TRACE] = str(trace.resolve())  # every cell's process gets this one's environment
    pace = Pace(workers, start=start, gpus=gpus)
    if again:
        plans = plans_again(named, database, device, most_runs)
        testbeds = find_testbeds(plans.device, pace)
        for doubt in plans.doubts(testbeds, commit):
            click.echo(f"inductor-watch: {doubt}", err=True)
    else:
        testbeds = find_testbeds(device, pace)
        place = device_of(testbeds)
        matrices = [
            Matrix(place, dtype or default_dtype(place, phase), configs, suites, models, (), (phase,), batch_size)
            for phase in parse_phases(phases)
        ]
        plans = Rounds(place, [join(make_plan(matrix) for matrix in matrices)] * replicates)
    # Runs that repeat each other are one night, so that one name stands for all of them.
    night = new_run_id() if len(plans.plans) > 1 else ""
    names = RunNames(branch, commit, repo, "again" if again else "adhoc", label, branch_start=base, night=night)
    settings = Settings(rounds=samples, timeout_s=timeout, precision=precision or 0.0, warm_compile=warm_compile)
    failing = 0
    for plan in plans.plans:
        _, progress = measure_and_store(plan, testbeds, names, settings, out, None if no_store else database)
        failing += progress.failing
    if again:
        click.echo(plans.next_step)
    elif not no_store:
        from db.engine import shown

        click.echo(f"look at it: inductor-watch compare latest~1 latest --db {shown(database)}")
    if fail and failing:
        raise SystemExit(1)
