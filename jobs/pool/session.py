"""A run from start to end: measure a plan, print the progress, close the bundles, store them, and show the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleWriter, RunHeader
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import NOT_APPLICABLE, Cell, Measurement, Stage, Status, sizes_of, status_words
from jobs.output.tables import PipeConsole, say
from jobs.output.terminal import TO_RESUME, one_line, several, tell
from jobs.plan.cost import CostModel, MemoryOf, learn_from, read_history
from jobs.plan.planning import NothingToDoError, Plan
from jobs.plan.shards import longest_first, predict, shares
from jobs.plan.spared_cells import SAME_CODE_AS, Known, known_cells, plan_work
from jobs.pool.resuming import Unfinished
from jobs.pool.runner import DeviceRun, Result, make_header, measure_devices, new_run_id, now
from jobs.pool.testbeds import Testbed, cell_variables, last_testbeds
from jobs.requested_options import RequestedOptions, RunNames


class RunProgress:
    """The progress of a run: it counts the cells and prints a line for each.

    `worker_s` has the expected seconds of a worker of each cell, by `cell_id`, and `expected_s` is how long the run is expected
    to take.
    """

    def __init__(
        self, console: Console, total: int, worker_s: Mapping[str, float] | None = None, expected_s: float = 0.0
    ) -> None:
        self.console, self.total = console, total
        self._worker_s, self._expected_s = worker_s or {}, expected_s
        self.counts: Counter[Status] = Counter()
        self._status: dict[str, Status] = {}
        #: The number of cells that are unavailable here, by config and reason.
        self._unavailable: Counter[tuple[str, str]] = Counter()
        #: The night from which a cell was carried over, by `cell_id`.
        self.carried: dict[str, str] = {}
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """The number of cells measured so far."""
        return self.counts.total()

    @property
    def measured(self) -> set[str]:
        """The `cell_id` of each cell measured so far."""
        return set(self._status)

    @property
    def failing(self) -> int:
        """The number of cells that were measured and did not pass; cells that are unavailable here do not count."""
        return self.done - sum(self.counts[status] for status in (Status.PASS, *NOT_APPLICABLE))

    def left_s(self) -> float | None:
        """Return the seconds left; None before the first cell.

        They come from the expected time at the beginning, when few of the cells under way have ended, and more and more from the
        pace so far.
        """
        if not self.done:
            return None
        took_s, all_s = time.monotonic() - self._began, sum(self._worker_s.values())
        if not (all_s and self._expected_s):
            return took_s / self.done * (self.total - self.done)
        part = sum(self._worker_s.get(cell_id, 0.0) for cell_id in self._status) / all_s
        return (1 - part) * (self._expected_s * (1 - part) + took_s)

    def carried_words(self) -> str:
        """Return words for how many cells were measured, and how many were carried over from which nights."""
        nights = Counter(self.carried.values())
        measured, others = self.done - nights.total(), len(nights) - 1
        more = f" and {several(others, 'other night')}" if others > 0 else ""
        of = f" as same code as {max(nights)}{more}" if nights else ""
        return f"{several(measured, 'cell')} measured, {nights.total()} carried over{of}"

    def took(self, measurement: Measurement) -> None:
        """Count one cell and print a line for it. A cell that is measured again counts once, with its last status."""
        if measurement.details.get("repeated") and (before := self._status.get(measurement.cell.cell_id)):
            self.counts[before] -= 1
        self._status[measurement.cell.cell_id] = measurement.status
        self.counts[measurement.status] += 1
        if night := measurement.details.get(SAME_CODE_AS):
            self.carried[measurement.cell.cell_id] = night
        if measurement.status is Status.UNAVAILABLE and measurement.failure:
            self._count_unavailable(measurement.cell, measurement.failure.message)
            return
        left = self.left_s()
        facts = f"{self.failing} failing, {format_s(left)} left" if left is not None else ""
        what = f"{measurement.cell_name}  {describe(measurement)}  ({measurement.wall_s:.0f} s; {facts})"
        say(self.console, f"[{self.done}/{self.total}] {what}")

    def _count_unavailable(self, cell: Cell, reason: str) -> None:
        """Print once for each config why its cells cannot be measured here; `unavailable_words` gives their number."""
        self._unavailable[cell.config.name, reason] += 1
        if self._unavailable[cell.config.name, reason] == 1:
            say(self.console, f"{cell.config.name} is unavailable here: {one_line(reason)} (told once)")

    def unavailable_words(self) -> list[str]:
        """Return a line for each config that cannot be measured here, with the number of its cells."""
        return [
            f"{several(count, 'cell')} of {config} not measured: {one_line(reason)}"
            for (config, reason), count in self._unavailable.items()
        ]


def describe(measurement: Measurement) -> str:
    """Describe a cell's outcome in a few words: the figures of a pass, the reason of any other status."""
    if measurement.status is not Status.PASS:
        reason = one_line((measurement.failure.message.splitlines() or [""])[0], 140) if measurement.failure else ""
        return f"{measurement.status}: {reason}" if reason else str(measurement.status)
    metrics = measurement.metrics
    parts = [f"{metrics['speedup']:.2f}x"] if "speedup" in metrics else []
    if "device_speedup" in metrics:
        parts.append(f"device {metrics['device_speedup']:.2f}x")
    if "compiled_ms" in metrics:
        parts.append(f"{metrics['compiled_ms']:.3g} ms")
    if "compile_cold_s" in metrics:
        parts.append(f"compile {metrics['compile_cold_s']:.1f} s")
    parts += sizes_words(measurement)
    if night := measurement.details.get(SAME_CODE_AS):
        parts.append(f"same code as {night}")
    parts += [
        f"{word} ({measurement.details[word]})" for word in ("disturbed", "repeated") if word in measurement.details
    ]
    return f"{status_words(measurement.status, measurement.details)}  {'  '.join(parts)}"


def sizes_words(measurement: Measurement) -> list[str]:
    """Return words for a dynamic config: the cost of each size beside a static program, and the number of recompiles."""
    if not (sizes := sizes_of(measurement.details)):
        return []
    words = [f"{size}: {size.over_static:.2f}x static" for size in sizes if size.over_static]
    return [*words, several(round(measurement.metrics.get("recompiles", 0.0)), "recompile")]


def format_s(seconds: float) -> str:
    """Format seconds as `42 s`, `3 min` or `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


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
    """Measure a plan, store it, and return the ids of the runs (one for each testbed) and the progress with its counts.

    The database is opened before anything is measured, so that a folder that cannot be written to is known at once. Without
    a database the bundles are the only result. `costs` is a folder of bundles that show what cells take (else `folder`).
    `parts` are the cells of each testbed, if it matters which testbed measures a cell.

    Raises:
        NothingToDoError: the plan is empty.
        LostDeviceError: a GPU stopped answering; all measurements until then are stored.
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
    """Return the outcomes to record for cells that need not even be compiled; none if no cell may start."""
    if not known or testbed.execution.budget_s <= 0:
        return []
    from jobs.census.census_runs import (
        unchanged_cells,
    )  # here: an environment of another build lacks what it imports

    return list(unchanged_cells(cells, known, testbed, settings))


def resume_and_store(
    unfinished: Sequence[Unfinished], testbeds: Sequence[Testbed], database: str | None
) -> tuple[list[str], RunProgress]:
    """Resume the runs of a night where they stopped, as `measure_and_store` would have continued them.

    Raises:
        BundleError: another process writes one of the runs.
        LostDeviceError: a GPU stopped answering; all measurements until then are stored.
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
    """Announce the runs (their headers with the number of the attempt), measure them, and store their bundles."""
    console, execution = PipeConsole(), runs[0].testbed.execution
    ordered = []
    for run in runs:
        cells = longest_first(run.work.cells, model, execution.workers or 1, execution.budget_s)
        ordered.append(replace(run, work=replace(run.work, cells=cells)))
    total = sum(run.work.total + len(run.carried) for run in runs)
    worker_s = {cell.cell_id: model.estimate(cell).worker_s for run in ordered for cell in run.work.cells}
    expected_s = max(predict(run.work.cells, model, execution.workers or 1).total_s for run in ordered)
    progress = RunProgress(console, total, worker_s, expected_s)
    variables = cell_variables(execution.start)
    try:
        for (header, attempt), run in zip(headers, runs, strict=True):
            _announce(console, header, run, attempt)
        for line in left_out:
            console.print(f"left out: {line}", style="dim", highlight=False, markup=False, soft_wrap=True)
        result = measure_devices(ordered, settings, progress.took, variables, memory_of(model), partial(say, console))
    except BrokenPipeError:
        tell(f"nothing reads the output any more: {TO_RESUME}")
        raise
    _store(console, result, store)
    if execution.carried_nights:
        say(console, progress.carried_words())
    for line in progress.unavailable_words():
        say(console, line)
    if progress.done < total:
        again = f"`inductor-watch resume --out {result.paths[0].parent}` measures them"
        say(console, f"{total - progress.done} cells were not started in time: {again}")
    if result.lost:
        raise result.lost
    return [header.run_id for header, _ in headers], progress


def _store(console: Console, result: Result, store: Store | None) -> None:
    """Store the bundles and name them. They are stored first, since the output may have no reader any more."""
    try:
        stored = [store(path) for path in result.paths] if store else []
    finally:
        for path, usage in zip(result.paths, result.usages, strict=True):
            say(console, f"used {usage}")
            say(console, f"bundle {path}")
    for line in stored:
        say(console, line)


def memory_of(model: CostModel) -> MemoryOf:
    """Return a function that estimates a cell's device memory in the stages in which the cell itself cannot know it."""

    def known(cell: Cell, stage: Stage) -> float | None:
        cost = model.estimate(cell)
        sizes = {Stage.EAGER: cost.eager_bytes, Stage.CORRECTNESS: cost.check_bytes, Stage.COMPILE: cost.kept_bytes}
        return sizes.get(stage, cost.load_bytes)

    return known


def storing(database: str) -> Store:
    """Open the store, and return a function that puts a bundle into it and returns a message about that."""
    from db.engine import open_store, shown
    from db.ingest import ingest_bundle

    engine = open_store(database, write=True)

    def put(path: Path) -> str:
        report = ingest_bundle(engine, path)
        stored = f"database {shown(database)}: {several(report.new + report.updated, 'measurement')} stored"
        return f"{stored}\nrun {report.run_id} {report.out_of_order}" if report.newer else stored

    return put


def require_cells(plan: Plan) -> None:
    """Raise `NothingToDoError`, with the reasons, for an empty plan."""
    if not plan.cells:
        reasons = "; ".join(plan.left_out[:3]) or "no model matches"
        raise NothingToDoError(f"nothing to measure: {reasons} (see `inductor-watch zoo`)")


def _announce(console: Console, header: RunHeader, run: DeviceRun, attempt: int) -> None:
    """Print which cells are about to be measured, and on which device."""
    environment, duplicates = run.testbed.environment, run.work.named_twice
    total = run.work.total + len(run.carried)
    slot = run.testbed.slot
    device = environment.get("gpu") or f"{environment['cpu']}, {several(environment['cores'], 'core')}"
    again = f", attempt {attempt}" if attempt > 1 else ""
    on = f"{device}, torch {environment['torch']}, {header.branch}@{header.commit[:10]}"
    say(console, f"run {header.run_id}{again}: {several(total, 'cell')} on {on}")
    if len(slot.cores) > 1:
        quiet = (
            f", {several(len(slot.quiet_cores), 'core')} kept free for the one that measures"
            if slot.quiet_cores
            else ""
        )
        more = f", {slot.extra_cells} more while others wait" if slot.extra_cells else ""
        say(console, f"{len(slot.cores)} workers, each on {several(len(slot.cores[0]), 'core')}{more}{quiet}")
    if duplicates:
        same = "compile to the same program as another one: measured once, shown under each name"
        say(console, f"{duplicates} of them {same}")


def print_night(database: str, run_ids: Sequence[str]) -> None:
    """Print the stored summary table of the night that these runs belong to, and commands to look further."""
    from analysis.compare.compare_sides import summarise
    from db.engine import open_store
    from db.queries.sides import resolve_side
    from jobs.output.comparison_tables import show_summary
    from jobs.output.tables import console

    with open_store(database, write=False).connect() as connection:
        (night,) = resolve_side(connection, run_ids[0]).nights
        show_summary(console(), summarise(connection, resolve_side(connection, night)))
    print_next(database)


def print_next(database: str, repeats: Sequence[str] = ()) -> None:
    """Print the commands that show the runs just stored; `repeats` are runs of the same cells."""
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
