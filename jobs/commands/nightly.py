"""`inductor-watch nightly`: the zoo under the night's configs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.cluster.options import Executing, executing_options
from jobs.option_groups import (
    Naming,
    Selection,
    Working,
    care_options,
    max_hours_option,
    measuring_options,
    naming_options,
)
from jobs.options import db_option, json_option, sharing_option
from jobs.plan.planning import Plan, read_plan
from jobs.plan.selection import night_options, planned_night
from jobs.pool.extra_measurements import Care

if TYPE_CHECKING:
    from collector.settings import Settings
    from jobs.pool.runner import RunNames
    from jobs.pool.testbeds import Testbed


#: While a branch has fewer nights than this in the store, a night is measured twice: its runs tell how noisy they are.
_FIRST_NIGHTS = 7


@click.command(help="Measure the zoo under the night's configs, store it and show the summary.")
@night_options
@naming_options
@measuring_options
@care_options
@sharing_option
@max_hours_option
@click.option(
    "--replicates",
    type=click.IntRange(min=1),
    help="Measure everything so many times, in new processes: runs of one night, which tell the noise. "
    f"[2 while the branch has fewer than {_FIRST_NIGHTS} nights in the database, else 1; "
    "1 with --no-store, --max-hours, --plan or --executor]",
)
@click.option("--exclusive", is_flag=True, help="One cell at a time, on the cores of one of the --workers.")
@click.option("--tune-together", is_flag=True, help="Let several cells autotune at once: faster, choices less certain.")
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure the cells of this file, in its order, as `plan --json` writes them.",
)
@click.option(
    "--night",
    default="",
    envvar="INDUCTOR_WATCH_NIGHT",
    metavar="NAME",
    help="The night that this run is a part of, where several hosts share one. [what --plan says]",
)
@click.option("--dry-run", is_flag=True, help="Measure nothing: cells, predicted hours, and what would take them.")
@click.option(
    "--costs",
    type=click.Path(exists=True, path_type=Path),
    help="A bundle or a folder of bundles to learn from what cells take. [--out]",
)
@executing_options
@json_option
@db_option
def command(
    selection: Selection,
    configs: tuple[str, ...],
    naming: Naming,
    working: Working,
    care: Care,
    max_hours: float | None,
    replicates: int | None,
    exclusive: bool,
    tune_together: bool,
    plan_file: Path | None,
    night: str,
    dry_run: bool,
    costs: Path | None,
    executing: Executing,
    as_json: bool,
    database: str,
) -> None:
    """Plans, measures, stores; prints the summary table and how to look further."""
    from jobs.plan.dry_run import run_dry
    from jobs.plan.shards import check_night
    from jobs.pool.runner import new_run_id
    from jobs.pool.session import measure_and_store, print_night, require_cells
    from jobs.pool.testbeds import device_of, find_testbeds

    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run: leave it out, or add --dry-run")
    executing.check(working, dry_run)
    _check(replicates, is_bounded=executing.on_cluster or dry_run or max_hours is not None)
    budget_s = float("inf") if max_hours is None else 3600 * max_hours
    pace = working.pace(budget_s=budget_s, tune_together=tune_together, exclusive=exclusive)
    device, store = selection.device, None if working.no_store else database

    def asked(place: str) -> tuple[Plan, RunNames, Settings]:
        plan = read_plan(plan_file, place) if plan_file else planned_night(place, selection, configs)
        shared = check_night(night or plan.night) if night or plan.night else ""
        return plan, naming.names("nightly", shared), working.settings(care.or_else(plan.care))

    if executing.on_cluster:
        from jobs.cluster.session import measure_night

        runs = measure_night(executing, device, asked, pace, working.out, store, costs)
    else:
        # A dry run may plan for a device that is not here.
        testbeds = [] if dry_run and device else find_testbeds(device, pace, serve=not dry_run)
        place = device if not testbeds else device_of(testbeds)
        assert place is not None  # noqa: S101 - one of both tells
        plan, names, settings = asked(place)
        if dry_run:
            require_cells(plan)
            run_dry(plan, costs, working.out, pace, as_json, len(testbeds) or 1)
            return
        if replicates is None:
            is_bounded = max_hours is not None or plan_file is not None
            replicates = 1 if is_bounded else _replicates(store, names, testbeds)
        if replicates > 1:
            names = replace(names, night=names.night or new_run_id())
        made = [
            measure_and_store(plan, testbeds, names, settings, working.out, store, costs)[0] for _ in range(replicates)
        ]
        runs = made[-1]
    if store and runs:
        print_night(store, runs)


def _check(replicates: int | None, *, is_bounded: bool) -> None:
    if is_bounded and (replicates or 1) > 1:
        raise click.UsageError(
            "--replicates repeats a whole night on this host: leave out --max-hours, --executor and --dry-run"
        )


def _replicates(database: str | None, names: RunNames, testbeds: Sequence[Testbed]) -> int:
    """How often a night is measured when nobody says so: twice while the store does not know the branch's noise."""
    from db.engine import open_store
    from db.runs import list_nights
    from jobs.pool.runner import make_header

    if database is None:
        return 1
    branch = make_header(testbeds[0].environment, names, "").branch
    known = list_nights(open_store(database, write=True), branch=branch, limit=_FIRST_NIGHTS)
    return 1 if len(known) >= _FIRST_NIGHTS else 2
