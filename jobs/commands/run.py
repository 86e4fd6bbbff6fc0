"""`inductor-watch run`: some cells, now."""

from __future__ import annotations

from typing import Any

import click

from jobs.option_groups import (
    Naming,
    Selection,
    Working,
    care_options,
    measuring_options,
    naming_options,
    selection_options,
)
from jobs.options import build_configs, config_options, db_option, sharing_option
from jobs.pool.extra_measurements import Care


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
@care_options
@sharing_option
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
    naming: Naming,
    working: Working,
    care: Care,
    replicates: int,
    database: str,
    fail: bool,
    **config: Any,
) -> None:
    """Plans what the options select, measures it and prints one line a cell."""
    from collector.vocabulary import Config
    from jobs.plan.again_run import Rounds, check_words, plans_again
    from jobs.plan.selection import selected
    from jobs.pool.runner import new_run_id
    from jobs.pool.session import measure_and_store, print_next
    from jobs.pool.testbeds import device_of, find_testbeds

    configs = build_configs(**config)
    if again and replicates > 1:
        raise click.UsageError("--again itself decides how often each cell is measured: leave out --replicates")
    check_words(named, again, is_selected=selection.is_narrowed or configs != [Config()])
    if not again and not selection.suites and not selection.models:
        raise click.UsageError(
            "name what to measure: --model NAME (`inductor-watch zoo` lists them), --model module:function, or --suite NAME"
        )
    pace = working.pace()
    if again:
        plans = plans_again(named, database, selection.device, most_runs)
        testbeds = find_testbeds(plans.device, pace, serve=True)
        for doubt in plans.doubts(testbeds, naming.commit):
            click.echo(f"inductor-watch: {doubt}", err=True)
    else:
        testbeds = find_testbeds(selection.device, pace, serve=True)
        place = device_of(testbeds)
        plans = Rounds(place, [selected(place, selection, configs)] * replicates)
    # Runs that repeat each other are one night, so that one name stands for all of them.
    night = new_run_id() if len(plans.plans) > 1 else ""
    names = naming.names("again" if again else "adhoc", night)
    failing, firsts = 0, list[str]()
    for plan in plans.plans:
        settings = working.settings(care.or_else(plan.care))
        made, progress = measure_and_store(
            plan, testbeds, names, settings, working.out, None if working.no_store else database
        )
        failing += progress.failing
        firsts += made[:1]
    if again:
        click.echo(plans.next_step)
    elif not working.no_store:
        print_next(database, firsts)
    if fail and failing:
        raise SystemExit(1)
