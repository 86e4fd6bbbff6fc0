"""`inductor-watch run`: some cells, now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from collector.vocabulary import Config
from jobs.options import (
    config_options,
    db_option,
    measuring_options,
    naming_options,
    no_store_option,
    out_option,
    selection_options,
)
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection


@click.command(
    help="Measure some cells now, store them and show them. With --again, measure the cells that a comparison left open: "
    "those in FILE, which `report --again-plan` writes, or those of BASE and NEW [latest~1 latest]."
)
@click.argument("named", nargs=-1, metavar="[FILE | BASE NEW]")
@click.option("--again", is_flag=True, help="Measure again what a comparison left open, as often as each cell needs.")
@click.option(
    "--most-runs", type=click.IntRange(min=1), default=5, show_default=True, help="With --again: at most so many runs."
)
@selection_options
@config_options
@naming_options
@measuring_options
@out_option
@no_store_option
@click.option(
    "--replicates",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Measure everything so many times, as runs of one night.",
)
@db_option
@click.option("--fail", is_flag=True, help="Exit with 1 if a cell fails.")
def command(
    named: tuple[str, ...],
    again: bool,
    most_runs: int,
    selection: Selection,
    configs: list[Config],
    names: RunNames,
    requested: RequestedOptions,
    out: Path,
    no_store: bool,
    replicates: int,
    database: str,
    fail: bool,
) -> None:
    """Plans what the options select, measures it and prints one line a cell."""
    from jobs.plan.again import Rounds, check_arguments, plans_again
    from jobs.plan.planning import selected
    from jobs.pool.runner import new_run_id
    from jobs.pool.session import measure_and_store, print_next
    from jobs.pool.testbeds import find_testbeds

    if again and replicates > 1:
        raise click.UsageError("--again itself decides how often each cell is measured: leave out --replicates")
    check_arguments(named, again, is_selected=selection.is_narrowed or configs != [Config()])
    if not again and not selection.suites and not selection.models:
        raise click.UsageError(
            "name what to measure: --model NAME (`inductor-watch zoo` lists them), --model module:function, or --suite NAME"
        )
    if again:
        rounds = plans_again(named, database, selection.device, most_runs)
        testbeds = find_testbeds(rounds.device, requested.execution, serve=True)
        for doubt in rounds.doubts(testbeds, names.commit):
            click.echo(f"inductor-watch: {doubt}", err=True)
    else:
        testbeds = find_testbeds(selection.device, requested.execution, serve=True)
        device = testbeds[0].device
        rounds = Rounds(device, [selected(device, selection, configs)] * replicates)
    # Runs that repeat each other are one night, so that one name stands for all of them.
    night = new_run_id() if len(rounds.plans) > 1 else ""
    names = replace(names, trigger="again" if again else "adhoc", night=night)
    failing, first_runs = 0, list[str]()
    for plan in rounds.plans:
        settings = requested.with_extra(plan.extra).settings
        run_ids, progress = measure_and_store(plan, testbeds, names, settings, out, None if no_store else database)
        failing += progress.failing
        first_runs += run_ids[:1]
    if again:
        click.echo(rounds.next_step)
    elif not no_store:
        print_next(database, first_runs)
    if fail and failing:
        raise SystemExit(1)
