"""`inductor-watch run`, `resume`, `nightly` and `plan`: measure some cells or the night of this host, or list its cells."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from analysis.compare.comparison import MOST_CONFIRMATIONS
from collector.bundle import read_bundle
from collector.own_models import is_user_model
from collector.settings import Settings
from collector.vocabulary import Config
from db.engine import open_store
from db.nights import list_nights
from jobs.builds.build_options import SourceOptions, overlays_option, source_options
from jobs.checking.confirming import Rounds, check_arguments, confirm, find_confirmable, is_any_due, plans_again
from jobs.checking.confirming import confirm as confirm_night
from jobs.cluster.cluster_night import Executing, executing_options, measure_night
from jobs.options import (
    EXISTING,
    FOLDER,
    INPUT_FILE,
    POSITIVE,
    Storage,
    as_one,
    example,
    json_option,
    refuse_given,
    repeatable,
    storage_options,
)
from jobs.output.terminal import outputs_file, print_json, write_outputs
from jobs.plan.cost import CostModel, learn_from
from jobs.plan.dry_run import run_dry
from jobs.plan.models_file import local_models
from jobs.plan.planning import GPU_NIGHT, Plan, planned_night, planned_run, read_plan
from jobs.plan.shards import MOST_JOBS, check_night, cut, matrix, write_plans
from jobs.plan.spared_cells import carrying_over
from jobs.pool.device_slots import holding_for
from jobs.pool.resuming import Unfinished, bundle_named, find_night
from jobs.pool.runner import make_header, new_run_id
from jobs.pool.session import measure_and_store, print_next, print_night, require_cells, resume_and_store
from jobs.pool.testbeds import Testbed, find_testbeds, keeping_servers, likely_models, probe, testbeds_of
from jobs.requested_options import (
    RequestedOptions,
    RunNames,
    Selection,
    config_options,
    max_hours_option,
    measuring_options,
    models_file_option,
    naming_options,
    night_measuring_options,
    night_name_option,
    night_options,
    replicates_option,
    selection_options,
    shared_tuning_option,
    workflow_night,
)


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

    With --again, measure the cells that a comparison left open: the cells in FILE, which `report --again-plan` writes, or the
    open cells of BASE and NEW [latest~1 latest].
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
        for caution in rounds.cautions(testbeds, names.commit):
            click.echo(f"inductor-watch: {caution}", err=True)
    else:
        context.with_resource(holding_for(selection.device, requested.execution.gpus))
        models = likely_models(selection, ())
        testbeds = find_testbeds(selection.device, requested.execution, serve=True, models=models)
        device = testbeds[0].device
        rounds = Rounds(device, [planned_run(device, selection, configs)] * replicates)
    context.with_resource(keeping_servers(testbeds))
    # Runs that repeat each other form one night, so that one name stands for all of them.
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


@click.command(epilog=example("plan --model T5Small --config triton --json"))
@night_options
@click.option(
    "--shards",
    type=click.IntRange(1, MOST_JOBS),
    help="Divide the night among so many hosts; a model stays on one host.",
)
@click.option(
    "--github-output", is_flag=True, help="With --shards: matrix, shards, cells and night as a step's outputs."
)
@click.option(
    "--costs", type=EXISTING, help="With --shards: a bundle or a folder of bundles to learn from what cells take."
)
@click.option(
    "--out", type=FOLDER, default=Path("plan"), help="With --shards: the folder for plan.json, shard-01.json, ..."
)
@night_name_option("With --shards: what the night is called. [the workflow's run, else the time]")
@json_option
def plan_command(
    selection: Selection,
    configs: tuple[str, ...],
    shards: int | None,
    github_output: bool,
    costs: Path | None,
    out: Path,
    night: str,
    as_json: bool,
) -> None:
    """Show the cells that `nightly` would measure, and what it leaves out.

    With --shards, write a plan for each of several hosts: `nightly --plan` measures one of them, and `ingest --plan` puts the
    night together.
    """
    if shards is None:
        of_shards = ("github_output", "costs", "out", "night")
        refuse_given(of_shards, "goes with --shards: add --shards N, or leave it out")
    elif as_json:
        raise click.UsageError("--json prints the whole plan: with --shards it is in plan.json")
    if github_output:
        outputs_file()  # before anything is written
    plan = planned_night(selection.device or str(probe(None)["device"]), selection, configs)
    if shards is not None:
        _divide(plan, shards, costs, out, night, github_output)
    elif as_json:
        print_json(plan.to_json())
    else:
        _show(plan)


def _divide(plan: Plan, count: int, costs: Path | None, out: Path, night: str, github_output: bool) -> None:
    """Write a plan for each of `count` hosts, and print the cells and the predicted time of each."""
    require_cells(plan)
    model = learn_from(costs) if costs else CostModel.learn([])
    made, night = cut(plan, model, count), night or workflow_night() or new_run_id()
    write_plans(out, night, plan, made)
    cells = len(plan.cells)
    if github_output:
        write_outputs({"matrix": matrix(made), "shards": str(len(made)), "cells": str(cells), "night": night})
    for shard in made:
        minutes = shard.worker_s / 60
        click.echo(
            f"{out / shard.file}: {len(shard.cells)} cells, {shard.models} models, {minutes:.1f} min of one worker"
        )
    click.echo(f"night {night}: {cells} cells in {len(made)} shards, the whole in {out / 'plan.json'}")


def _show(plan: Plan) -> None:
    for cell in plan.cells:
        click.echo(str(cell))
    for line in plan.left_out:
        click.echo(f"left out: {line}")
    counts = Counter(cell.config.name for cell in plan.cells)
    click.echo(f"{len(plan.cells)} cells: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


#: While a branch has fewer nights than this in the store, a night is measured twice, so that its runs show the noise.
_FIRST_NIGHTS = 7


@dataclass(frozen=True, slots=True)
class Carrying:
    """Options for carrying over cells whose code did not change; the fields are the names of the options."""

    unchanged_code: str
    at_least_every: int

    def applied(self, requested: RequestedOptions, history: Path) -> RequestedOptions:
        """Return the options of a night that carries over cells from these bundles. Raises what `carrying_over` raises."""
        return carrying_over(requested, self.at_least_every, history) if self.unchanged_code == "skip" else requested


carrying_options = as_one(
    "carrying",
    Carrying,
    click.option(
        "--unchanged-code",
        type=click.Choice(["measure", "skip"]),
        default="measure",
        help="With skip a cell that compiles to the same code as in an earlier night is not timed but carried over from it. "
        "Tuning is then shared, in a folder beside the bundles unless --shared-tuning names one.",
    ),
    click.option(
        "--at-least-every",
        type=POSITIVE,
        default=7,
        metavar="NIGHTS",
        help="Carry a cell over for at most so many nights, then measure it again.",
    ),
)


@click.command(epilog=example("nightly --gpus all --workers 8 --max-hours 2"))
@night_options
@naming_options
@source_options
@night_measuring_options
@storage_options
@click.option(
    "--replicates",
    type=POSITIVE,
    help="Measure everything so many times, in new processes: runs of one night, which tell the noise. "
    f"[2 while the branch has fewer than {_FIRST_NIGHTS} nights in the database, else 1; "
    "1 with --no-store, --max-hours, --plan or --executor]",
)
@click.option(
    "--plan",
    "plan_file",
    type=INPUT_FILE,
    help="Measure the cells of this file, in its order, as `plan --json` writes them.",
)
@night_name_option("The night that this run is a part of, where several hosts share one. [what --plan says]")
@carrying_options
@click.option(
    "--confirm/--no-confirm",
    default=None,
    help="Measure again, in new processes, what changed against the night before, or what one more run would decide: up to "
    f"{MOST_CONFIRMATIONS} times, within --max-hours, for no longer than the night itself took, and base too where its torch is "
    "at hand. [--confirm; not with --no-store or --executor]",
)
@click.option("--dry-run", is_flag=True, help="Measure nothing: cells, predicted hours, and what would take them.")
@click.option("--costs", type=EXISTING, help="A bundle or a folder of bundles to learn from what cells take. [--out]")
@executing_options
@json_option
def nightly_command(
    selection: Selection,
    configs: tuple[str, ...],
    names: RunNames,
    source: SourceOptions,
    requested: RequestedOptions,
    storage: Storage,
    replicates: int | None,
    plan_file: Path | None,
    night: str,
    carrying: Carrying,
    confirm: bool | None,
    dry_run: bool,
    costs: Path | None,
    executing: Executing,
    as_json: bool,
) -> None:
    """Measure the zoo under the night's configs, store it and show the summary."""
    elsewhere = {
        "--gpus": requested.execution.gpus is not None,
        "--dry-run": dry_run,
        "--source": source.source,
        "--unchanged-code skip": carrying.unchanged_code == "skip",
        "--trace": requested.settings.trace,
        "--confirm": bool(confirm),
    }
    executing.check([option for option, is_given in elsewhere.items() if is_given])
    requested = carrying.applied(requested, costs or storage.out)
    names, requested = source.applied(names, requested)
    requested = _confirming(requested, confirm, storage)
    execution = requested.execution
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run: leave it out, or add --dry-run")
    is_bounded = executing.on_cluster or dry_run or execution.budget_s != float("inf")
    if is_bounded and (replicates or 1) > 1:
        raise click.UsageError(
            "--replicates repeats a whole night on this host: leave out --max-hours, --executor and --dry-run"
        )

    def planned(device: str) -> tuple[Plan, RunNames]:
        plan = read_plan(plan_file, device) if plan_file else planned_night(device, selection, configs)
        shared = night or plan.night
        of_night = replace(names, trigger="nightly", night=check_night(shared) if shared else "")
        return plan, of_night

    if executing.on_cluster:
        run_ids = measure_night(executing, selection.device, planned, requested, storage, costs)
    else:
        if not dry_run:
            click.get_current_context().with_resource(holding_for(selection.device, execution.gpus))
        # A dry run may plan for a device that is not here.
        models = () if dry_run or plan_file else likely_models(selection, GPU_NIGHT)
        is_elsewhere = dry_run and selection.device
        testbeds = [] if is_elsewhere else find_testbeds(selection.device, execution, not dry_run, models=models)
        click.get_current_context().with_resource(keeping_servers(testbeds))
        plan, names = planned(testbeds[0].device if testbeds else str(selection.device))
        if dry_run:
            require_cells(plan)
            here = testbeds[0].execution if testbeds else replace(execution, workers=execution.workers or 1)
            run_dry(plan, costs, storage.out, here, as_json, len(testbeds) or 1)
            return
        if replicates is None:
            replicates = 1 if is_bounded or plan_file else _replicates(storage.target, names, testbeds)
        source.import_commits(names, storage.target)
        began = time.monotonic()
        run_ids = _measure(replicates, plan, testbeds, names, requested, storage, costs)
        if execution.confirm:
            settings = requested.settings.with_models(plan.own_models)
            left_s = execution.budget_s - (time.monotonic() - began)
            _confirm(run_ids, testbeds, settings, storage, source.overlays, left_s, is_asked=bool(confirm))
    if storage.target and run_ids:
        print_night(storage.target, run_ids)


def _confirming(requested: RequestedOptions, confirm: bool | None, storage: Storage) -> RequestedOptions:
    """Return the options of a night with `confirm` set. Without a store there is no base, so a night confirms nothing."""
    if confirm and storage.no_store:
        raise click.UsageError("--confirm compares with the night before in the database: leave out --no-store")
    is_wanted = confirm is not False and not storage.no_store
    return replace(requested, execution=replace(requested.execution, confirm=is_wanted))


def _confirm(
    run_ids: Sequence[str],
    testbeds: Sequence[Testbed],
    settings: Settings,
    storage: Storage,
    overlays: Path,
    left_s: float,
    is_asked: bool,
) -> None:
    """Measure the changed cells of the night of these runs (one for each testbed) again."""
    paths = [bundle_named(storage.out, run_id) for run_id in run_ids]
    runs = [Unfinished(path, read_bundle(path), overlays=(overlays,)) for path in paths]
    confirm_night(runs, testbeds, settings, storage.database, left_s, is_asked=is_asked)


def _measure(
    replicates: int,
    plan: Plan,
    testbeds: Sequence[Testbed],
    names: RunNames,
    requested: RequestedOptions,
    storage: Storage,
    costs: Path | None,
) -> list[str]:
    """Measure the plan `replicates` times, as runs of one night, and return the ids of the last runs."""
    if replicates > 1:
        names = replace(names, night=names.night or new_run_id())
    run_ids: list[str] = []
    progress = None
    for _ in range(replicates):
        if progress and progress.carried:
            # A second run shows the noise of latencies; cells that were carried over have no latencies.
            plan = replace(plan, cells=[cell for cell in plan.cells if cell.cell_id not in progress.carried])
            if not plan.cells:
                break
        run_ids, progress = measure_and_store(
            plan, testbeds, names, requested.settings, storage.out, storage.target, costs
        )
    return run_ids


def _replicates(database: str | None, names: RunNames, testbeds: Sequence[Testbed]) -> int:
    """Return how often a night is measured by default: twice while the store has too few nights to know the branch's noise."""
    if database is None:
        return 1
    branch = make_header(testbeds[0].environment, names).branch
    known = list_nights(open_store(database, write=True), branch=branch, limit=_FIRST_NIGHTS)
    return 1 if len(known) >= _FIRST_NIGHTS else 2
