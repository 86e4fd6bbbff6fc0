"""`inductor-watch run` and `resume`: some cells now, and what is left of a run that stopped."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from collector.own_models import is_user_model
from collector.vocabulary import Config
from jobs.builds.build_options import SourceOptions, overlays_option, source_options
from jobs.checking.confirming import confirm, find_confirmable, is_any_due
from jobs.measuring_options import (
    config_options,
    max_hours_option,
    measuring_options,
    models_file_option,
    naming_options,
    replicates_option,
    selection_options,
    shared_tuning_option,
)
from jobs.options import FOLDER, POSITIVE, Storage, example, repeatable, storage_options
from jobs.plan.again import Rounds, check_arguments, plans_again
from jobs.plan.models_file import local_models
from jobs.plan.planning import planned_run
from jobs.pool.device_slots import holding_for
from jobs.pool.resuming import Unfinished, find_night
from jobs.pool.runner import new_run_id
from jobs.pool.session import measure_and_store, print_next, print_night, resume_and_store
from jobs.pool.testbeds import Testbed, find_testbeds, keeping_servers, testbeds_of
from jobs.requested_options import RequestedOptions, RunNames, Selection


@click.command(epilog=example("run --model 'Bert*' --config cudagraphs --config max_autotune"))
@click.argument("named", nargs=-1, metavar="[FILE | BASE NEW]")
@click.option("--again", is_flag=True, help="Measure again what a comparison left open, as often as each cell needs.")
@click.option("--most-runs", type=POSITIVE, default=5, help="With --again: at most so many runs.")
@selection_options
@config_options
@naming_options
@source_options
@measuring_options
@storage_options
@replicates_option
@click.option("--fail", is_flag=True, help="Exit with 1 if a cell fails.")
@click.pass_context
def run_command(
    context: click.Context,
    named: tuple[str, ...],
    again: bool,
    most_runs: int,
    selection: Selection,
    configs: list[Config],
    names: RunNames,
    source: SourceOptions,
    requested: RequestedOptions,
    storage: Storage,
    replicates: int,
    fail: bool,
) -> None:
    """Measure some cells now, store them and show them.

    With --again, measure the cells that a comparison left open: those in FILE, which `report --again-plan` writes, or those of
    BASE and NEW [latest~1 latest].
    """
    if again and replicates > 1:
        raise click.UsageError("--again itself decides how often each cell is measured: leave out --replicates")
    chosen = replace(selection, models=tuple(text for text in selection.models if not is_user_model(text)))
    is_selected = (chosen if again else selection).is_narrowed or configs != [Config()]
    check_arguments(named, again, is_selected=is_selected)
    if not again and not selection.suites and not selection.models:
        raise click.UsageError(
            "name what to measure: --model NAME (`inductor-watch zoo` lists them), --model module:function, or --suite NAME"
        )
    names, requested = source.applied(names, requested)
    if again:
        local = local_models(selection.models_file, selection.models)
        rounds = plans_again(named, storage.database, selection.device, most_runs, local)
        context.with_resource(holding_for(rounds.device, requested.execution.gpus))
        testbeds = find_testbeds(rounds.device, requested.execution, serve=True)
        for doubt in rounds.doubts(testbeds, names.commit):
            click.echo(f"inductor-watch: {doubt}", err=True)
    else:
        context.with_resource(holding_for(selection.device, requested.execution.gpus))
        testbeds = find_testbeds(selection.device, requested.execution, serve=True)
        device = testbeds[0].device
        rounds = Rounds(device, [planned_run(device, selection, configs)] * replicates)
    context.with_resource(keeping_servers(testbeds))
    # Runs that repeat each other are one night, so that one name stands for all of them.
    night = new_run_id() if len(rounds.plans) > 1 else ""
    names = replace(names, trigger="again" if again else "adhoc", night=night)
    source.import_commits(names, storage.target)
    failing, first_runs = 0, list[str]()
    for plan in rounds.plans:
        run_ids, progress = measure_and_store(plan, testbeds, names, requested.settings, storage.out, storage.target)
        failing += progress.failing
        first_runs += run_ids[:1]
    if again:
        click.echo(rounds.next_step)
    elif not storage.no_store:
        print_next(storage.database, first_runs)
    if fail and failing:
        raise SystemExit(1)


@click.command(epilog=example("resume --retry-failed"))
@click.argument("run", required=False, metavar="[RUN_ID|BUNDLE]")
@storage_options
@max_hours_option
@click.option("--retry-failed", is_flag=True, help="Measure failed cells again, too; the new outcome counts.")
@models_file_option
@repeatable("model", "models", "A model of your own that the run measures, as module:function")
@overlays_option
@click.option("--trace", type=FOLDER, help="The run's folder for traces, where it is not below the current one.")
@shared_tuning_option
def resume_command(
    run: str | None,
    storage: Storage,
    budget_s: float,
    retry_failed: bool,
    models_file: str,
    models: tuple[str, ...],
    overlays: Path,
    trace: Path | None,
    shared_tuning: str,
) -> None:
    """Go on with a run that was killed, interrupted or out of time; without RUN the newest unfinished one.

    Its bundle has all options that it began with, but for the definitions of your own models. A folder that it names is used
    if it is below the current one, or named here.
    """
    unfinished = find_night(storage.out, run, retry_failed)
    began, local = time.monotonic(), local_models(models_file, models)
    folders = tuple(Path(folder) for folder in (trace, shared_tuning) if folder)

    def completed(runs: list[Unfinished]) -> list[Unfinished]:
        return [
            replace(item, budget_s=budget_s, own_models=local, overlays=(overlays,), folders=folders) for item in runs
        ]

    confirmable = [] if storage.no_store else completed(find_confirmable(storage.out, run, unfinished))
    if not unfinished and not (confirmable and is_any_due(confirmable, storage.database)):
        where = f"of {run}" if run else f"in {storage.out}"
        click.echo(f"nothing left to do: every planned cell {where} is measured")
        return
    run_ids, testbeds = list[str](), list[Testbed]()
    if unfinished:
        unfinished = completed(unfinished)
        testbeds = testbeds_of(unfinished, serve=True)
        click.get_current_context().with_resource(keeping_servers(testbeds))
        run_ids, _ = resume_and_store(unfinished, testbeds, storage.target)
    if confirmable:
        confirmable = completed(find_confirmable(storage.out, run, unfinished))  # with what was just measured
        names = [one.contents.header.run_id for one in confirmable]
        testbeds = testbeds if names == run_ids else testbeds_of(confirmable, serve=True)
        run_ids, left_s = names, budget_s - (time.monotonic() - began)
        confirm(confirmable, testbeds, confirmable[0].requested.settings, storage.database, left_s)
    if not storage.no_store:
        print_night(storage.database, run_ids)
