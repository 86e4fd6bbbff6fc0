"""`inductor-watch nightly`: the zoo under the night's configs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from analysis.compare.comparison import MOST_CONFIRMATIONS
from collector.bundle import read_bundle
from collector.settings import Settings
from db.engine import open_store
from db.nights import list_nights
from jobs.builds.build_options import SourceOptions, source_options
from jobs.checking.confirming import confirm as confirm_night
from jobs.cluster.cluster_night import Executing, executing_options, measure_night
from jobs.measuring_options import naming_options, night_measuring_options, night_name_option, night_options
from jobs.options import EXISTING, INPUT_FILE, POSITIVE, Storage, as_one, example, json_option, storage_options
from jobs.plan.dry_run import run_dry
from jobs.plan.planning import Plan, planned_night, read_plan
from jobs.plan.shards import check_night
from jobs.plan.spared_cells import carrying_over
from jobs.pool.device_slots import holding_for
from jobs.pool.resuming import Unfinished, bundle_named
from jobs.pool.runner import make_header, new_run_id
from jobs.pool.session import measure_and_store, print_night, require_cells
from jobs.pool.testbeds import Testbed, find_testbeds, keeping_servers
from jobs.requested_options import RequestedOptions, RunNames, Selection

#: While a branch has fewer nights than this in the store, a night is measured twice: its runs show how noisy they are.
_FIRST_NIGHTS = 7


@dataclass(frozen=True, slots=True)
class Carrying:
    """Whether cells whose code did not change are measured; the fields are the names of the options."""

    unchanged_code: str
    at_least_every: int

    def applied(self, requested: RequestedOptions, history: Path) -> RequestedOptions:
        """What a night is asked to do that carries over from these bundles. Raises what `carrying_over` raises."""
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
        testbeds = [] if dry_run and selection.device else find_testbeds(selection.device, execution, serve=not dry_run)
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
    """What a night is asked to do, and whether it confirms what changed. Without a store there is no base."""
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
    """Measures again what the night of these runs, one a testbed, says has changed."""
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
    """Measures the plan that many times, as runs of one night; returns the ids of the last runs."""
    if replicates > 1:
        names = replace(names, night=names.night or new_run_id())
    run_ids: list[str] = []
    progress = None
    for _ in range(replicates):
        if progress and progress.carried:
            # A second run tells the noise of latencies: cells that were carried over have none.
            plan = replace(plan, cells=[cell for cell in plan.cells if cell.cell_id not in progress.carried])
            if not plan.cells:
                break
        run_ids, progress = measure_and_store(
            plan, testbeds, names, requested.settings, storage.out, storage.target, costs
        )
    return run_ids


def _replicates(database: str | None, names: RunNames, testbeds: Sequence[Testbed]) -> int:
    """How often a night is measured by default: twice while the store does not know the branch's noise."""
    if database is None:
        return 1
    branch = make_header(testbeds[0].environment, names).branch
    known = list_nights(open_store(database, write=True), branch=branch, limit=_FIRST_NIGHTS)
    return 1 if len(known) >= _FIRST_NIGHTS else 2
