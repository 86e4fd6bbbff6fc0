"""A plan from start to end: measure, close the bundle, put it into the store, show what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleWriter, RunHeader
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Stage
from jobs.output.tables import say
from jobs.output.terminal import several
from jobs.plan.carrying import Known, known_cells
from jobs.plan.cost import CostModel, learn_from, read_history
from jobs.plan.duplicate_programs import plan_work
from jobs.plan.planning import NothingToDoError, Plan
from jobs.plan.schedule import longest_first, shares
from jobs.pool.memory_plan import MemoryOf
from jobs.pool.progress import RunProgress
from jobs.pool.resuming import Unfinished
from jobs.pool.runner import DeviceRun, make_header, measure_devices, new_run_id, now
from jobs.pool.testbeds import Testbed, cell_variables, last_testbeds
from jobs.requested_options import RequestedOptions, RunNames

Store = Callable[[Path], str]


def measure_and_store(
    plan: Plan,
    testbeds: Sequence[Testbed],
    names: RunNames,
    settings: Settings,
    folder: Path,
    database: str | None,
    costs: Path | None = None,
    parts: Sequence[Sequence[Cell]] | None = None,
) -> tuple[list[str], RunProgress]:
    """Measures a plan, stores it, and returns the runs' ids (one a testbed) and the progress with its counts.

    The database is opened before anything is measured, so that a folder that cannot be written is known at once.
    Without a database the bundles are all there is. `costs` is where to learn what cells take (else `folder`). `parts` are the
    cells of each testbed, where it matters which of them measures a cell.

    Raises:
        NothingToDoError: the plan is empty.
        LostDeviceError: a GPU stopped answering; what was measured is stored.
    """
    require_cells(plan)
    settings = settings.with_models(plan.own_models)
    for testbed in testbeds:
        testbed.import_for(plan.cells)
    store = storing(database) if database else None
    history = read_history(costs or folder)
    model = CostModel.of_history(history)
    if len(testbeds) > 1:
        names = replace(names, night=names.night or new_run_id())
    headers, runs = [], []
    parts = parts or shares(plan.cells, model, len(testbeds), last_testbeds(history, testbeds))
    for testbed, cells in zip(testbeds, parts, strict=True):
        header = make_header(testbed.environment, names, RequestedOptions(settings, testbed.execution))
        headers.append((header, 1))
        known = known_cells(costs or folder, header, RequestedOptions(settings, testbed.execution))
        carried = _carried(cells, known, testbed, settings)
        there = {outcome.measurement.cell.cell_id for outcome in carried}
        work = plan_work([cell for cell in cells if cell.cell_id not in there])
        runs.append(DeviceRun(testbed, work, BundleWriter(folder, header, list(cells)), known, carried))
    return _measure(headers, runs, settings, store, model, plan.left_out)


def _carried(cells: Sequence[Cell], known: Mapping[str, Known], testbed: Testbed, settings: Settings) -> list[Outcome]:
    """Return what is recorded of cells that need not even be compiled; none where no cell may start."""
    if not known or testbed.execution.budget_s <= 0:
        return []
    from jobs.census.unchanged_cells import (
        unchanged_cells,
    )  # here: an environment of another build lacks what it imports

    return list(unchanged_cells(cells, known, testbed, settings))


def resume_and_store(
    unfinished: Sequence[Unfinished], testbeds: Sequence[Testbed], database: str | None
) -> tuple[list[str], RunProgress]:
    """Resumes the runs of a night where they stopped, as `measure_and_store` would have continued them.

    Raises:
        BundleError: another process writes one of the runs.
        LostDeviceError: a GPU stopped answering; what was measured is stored.
    """
    for testbed in testbeds:
        testbed.import_for(cell for run in unfinished for cell in run.contents.planned)
    store = storing(database) if database else None
    model = learn_from(unfinished[0].path.parent)
    headers, runs = [], []
    for run, testbed in zip(unfinished, testbeds, strict=True):
        writer, contents = BundleWriter.reopen(run.path, now())
        headers.append((contents.header, contents.attempt + 1))
        # The contents are read again: before the bundle was locked another process may have continued it.
        known = known_cells(run.path.parent, contents.header, run.requested)
        runs.append(DeviceRun(testbed, run.work(contents), writer, known))
    return _measure(headers, runs, unfinished[0].requested.settings, store, model)


def _measure(
    headers: Sequence[tuple[RunHeader, int]],
    runs: Sequence[DeviceRun],
    settings: Settings,
    store: Store | None,
    model: CostModel,
    left_out: Sequence[str] = (),
) -> tuple[list[str], RunProgress]:
    """Announces the runs (their headers with the number of the attempt), measures them and stores their bundles."""
    console, execution = Console(), runs[0].testbed.execution
    ordered = []
    for (header, attempt), run in zip(headers, runs, strict=True):
        _announce(console, header, run, attempt)
        cells = longest_first(run.work.cells, model, execution.workers or 1, execution.budget_s)
        ordered.append(replace(run, work=replace(run.work, cells=cells)))
    for line in left_out:
        console.print(f"left out: {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
    total = sum(run.work.total + len(run.carried) for run in runs)
    progress, variables = RunProgress(console, total), cell_variables(execution.start)
    result = measure_devices(ordered, settings, progress.took, variables, memory_of(model), partial(say, console))
    if execution.carried_nights:
        say(console, progress.carried_words())
    for line in progress.unavailable_words():
        say(console, line)
    for path, usage in zip(result.paths, result.usages, strict=True):
        say(console, f"used {usage}")
        say(console, f"bundle {path}")
        if store:
            say(console, store(path))
    if progress.done < total:
        again = f"`inductor-watch resume --out {result.paths[0].parent}` measures them"
        say(console, f"{total - progress.done} cells were not started in time: {again}")
    if result.lost:
        raise result.lost
    return [header.run_id for header, _ in headers], progress


def memory_of(model: CostModel) -> MemoryOf:
    """Return what tells the device memory of a cell in the stages in which it cannot know itself."""

    def known(cell: Cell, stage: Stage) -> float | None:
        cost = model.estimate(cell)
        sizes = {Stage.EAGER: cost.eager_bytes, Stage.CORRECTNESS: cost.check_bytes, Stage.COMPILE: cost.kept_bytes}
        return sizes.get(stage, cost.load_bytes)

    return known


def storing(database: str) -> Store:
    """Opens the store; what is returned puts a bundle into it and says so in a line."""
    from db.engine import open_store, shown
    from db.ingest import ingest_bundle

    engine = open_store(database, write=True)

    def put(path: Path) -> str:
        report = ingest_bundle(engine, path)
        stored = f"database {shown(database)}: {report.new + report.updated} measurements stored"
        return f"{stored}\nrun {report.run_id} {report.out_of_order}" if report.newer else stored

    return put


def require_cells(plan: Plan) -> None:
    """Raises `NothingToDoError`, with the reasons, for an empty plan."""
    if not plan.cells:
        reasons = "; ".join(plan.left_out[:3]) or "no model matches"
        raise NothingToDoError(f"nothing to measure: {reasons} (see `inductor-watch zoo`)")


def _announce(console: Console, header: RunHeader, run: DeviceRun, attempt: int) -> None:
    """Says what is about to be measured and on what."""
    environment, duplicates = run.testbed.environment, run.work.named_twice
    total = run.work.total + len(run.carried)
    slot = run.testbed.slot
    device = environment.get("gpu") or f"{environment['cpu']}, {environment['cores']} cores"
    again = f", attempt {attempt}" if attempt > 1 else ""
    on = f"{device}, torch {environment['torch']}, {header.branch}@{header.commit[:10]}"
    say(console, f"run {header.run_id}{again}: {several(total, 'cell')} on {on}")
    if len(slot.cores) > 1:
        quiet = (
            f", {several(len(slot.quiet_cores), 'core')} kept free for the one that measures"
            if slot.quiet_cores
            else ""
        )
        say(console, f"{len(slot.cores)} workers, each on {several(len(slot.cores[0]), 'core')}{quiet}")
    if duplicates:
        same = "compile to the same program as another one: measured once, shown under each name"
        say(console, f"{duplicates} of them {same}")


def print_night(database: str, run_ids: Sequence[str]) -> None:
    """The summary table of the night that these runs belong to, as the database has it, and how to look further."""
    from analysis.compare.compare_sides import summarise
    from db.engine import open_store
    from db.queries.sides import resolve_side
    from jobs.output.printed_comparison import show_summary
    from jobs.output.tables import console

    with open_store(database, write=False).connect() as connection:
        (night,) = resolve_side(connection, run_ids[0]).nights
        show_summary(console(), summarise(connection, resolve_side(connection, night)))
    print_next(database)


def print_next(database: str, repeats: Sequence[str] = ()) -> None:
    """The commands that show what was just stored; `repeats` are runs of the same cells."""
    from db.engine import open_store, shown
    from db.nights import list_nights
    from db.queries.sides import base_nights

    option = f"--db {shown(database)}"
    click.echo(f"look at it: inductor-watch dashboard {option}")
    store = open_store(database, write=False)
    newest = list_nights(store, limit=1)
    if newest and any(base_nights(store, newest[0].runs)):
        click.echo(f"compare it with the night before: inductor-watch compare latest~1 latest {option}")
    if len(repeats) > 1:
        click.echo(f"compare its first run with its last: inductor-watch compare {repeats[0]} {repeats[-1]} {option}")
