"""`inductor-watch census`: the code that cells get on a GPU, generated without one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from collector.census.gpu_models import DEVICE_NAMES
from collector.configs import parse_config
from collector.device import CPU, GPU
from jobs.builds.build_options import SourceOptions, source_options
from jobs.builds.overlay import Wheel
from jobs.census.census_commits import CommitCensus, CommitRange, take_censuses
from jobs.census.census_pool import CensusPlace, CensusPool
from jobs.census.census_runs import EQUAL, Agreement, CensusCell, CensusMemory, CensusRun, CodeTruth, read_truth
from jobs.options import POSITIVE, Storage, example, json_option, storage_options
from jobs.output.tables import FittingTable, PipeConsole, console, say
from jobs.output.terminal import several
from jobs.plan.models_file import local_models, refusal
from jobs.plan.planning import Plan, names_cell, planned_night
from jobs.pool.session import require_cells, storing
from jobs.requested_options import (
    RequestedOptions,
    RunNames,
    Selection,
    cache_option,
    generating_options,
    naming_options,
    night_options,
)

#: The device of a census unless the options or a night say otherwise.
_DEFAULT_DEVICE = "H100"


@click.command(epilog=example("census --model 'Bert*' --config triton --config cudagraphs --device-name H100"))
@night_options
@click.option(
    "--device-name",
    type=click.Choice(DEVICE_NAMES, case_sensitive=False),
    help=f"The device that the code is for. [that of --against, else {_DEFAULT_DEVICE}; cpu with --device cpu]",
)
@click.option(
    "--against",
    metavar="BUNDLE|FOLDER|NIGHT",
    help="Compare with what a real device generated, and learn its answers to the questions; a selection is one of its cells.",
)
@click.option(
    "--git",
    "commits",
    nargs=2,
    metavar="REPO GOOD..BAD",
    help="Generate for each commit of a clone of PyTorch from GOOD to BAD: which one changed which cell's code.",
)
@naming_options
@source_options
@generating_options
@click.option("--workers", type=POSITIVE, help="Processes that generate side by side [one a core].")
@cache_option
@storage_options
@json_option
def census_command(
    selection: Selection,
    configs: tuple[str, ...],
    device_name: str | None,
    against: str | None,
    commits: tuple[str, str] | None,
    names: RunNames,
    source: SourceOptions,
    requested: RequestedOptions,
    workers: int | None,
    cache: Path,
    storage: Storage,
    as_json: bool,
) -> None:
    """Generate the code of cells as `measure` would keep it, without the GPU that it is for and without compiling kernels.

    Without a GPU the code of cpp_wrapper, and of configs that choose by timing (max_autotune, aten, tma, cutlass), is not known.
    Whether to pad a matrix product is a question: its answer is a night's (--against), or an assumption that is the same for all
    commits.

    With --against, exit code 1: the code of some cell differs; 3: no cell could be compared.
    """
    if commits and (against or source.source):
        raise click.UsageError("--git names the sources itself: leave out --source and --against")
    some = CommitRange.parse(Path(commits[0]), commits[1]) if commits else None
    truth = read_truth(against, storage.database) if against else None
    device_name = choose_device(device_name, selection.device, truth)
    if not commits:
        names, requested = source.applied(names, requested)
    execution = requested.execution
    place = CensusPlace(device_name, execution.overlay, execution.source, cache)
    threads = (truth and truth.threads) or (place.workers if device_name == CPU else 1)
    place = replace(place, workers=workers or place.workers, threads=threads)
    if place.overlay and place.overlay not in sys.path:
        sys.path.insert(0, place.overlay)  # this process plans with the torch of the source
    plan, version = _plan(place, selection, configs, truth), Wheel.installed().version
    memory = CensusMemory.read(place, version)
    if truth is None:
        plan = memory.without_differing(plan)
    require_cells(plan)
    requested = replace(requested, settings=requested.settings.with_models(plan.own_models))
    store = storing(storage.database) if storage.target else None
    out = PipeConsole(stderr=True) if as_json else console()
    agreement, began = Agreement(truth) if truth else None, time.monotonic()
    for line in plan.left_out:
        say(out, f"left out: {line}")
    say(out, f"census: {several(len(plan.cells), 'cell')} for {device_name}, torch {version}, {place.workers} workers")
    if some:
        found = take_censuses(some, plan.cells, place, source, (names, requested), memory, storage.out)
        _show_commits(found, store, out, as_json)
        return
    with (
        CensusPool(place, requested.settings) as pool,
        CensusRun(pool, plan.cells, names, requested, storage.out) as run,
    ):
        _take(run, memory, agreement, out, as_json)
    say(out, f"bundle {run.path}")
    if store and run.path:
        say(out, store(run.path))
    seconds = time.monotonic() - began
    say(out, f"{seconds:.0f} s, {seconds / len(plan.cells):.1f} s a cell")
    if agreement:
        _summarise(out, agreement)
        raise SystemExit(1 if agreement.differing else 0 if agreement.compared else 3)


def choose_device(named: str | None, device: str | None, truth: CodeTruth | None) -> str:
    """Return the device name that the options mean. Raises `click.UsageError` if they contradict each other."""
    chosen = named or (CPU if device == CPU else truth.device_name if truth else "") or _DEFAULT_DEVICE
    if device and device != (CPU if chosen == CPU else GPU):
        raise click.UsageError(f"--device {device} and --device-name {chosen} contradict each other: leave one out")
    return next((name for name in DEVICE_NAMES if name.lower() == chosen.lower()), chosen)


def _plan(place: CensusPlace, selection: Selection, configs: tuple[str, ...], truth: CodeTruth | None) -> Plan:
    """Return the plan of the selected cells, of all cells or of the night to compare with.

    Cells of the night are left out if they call something that only the night's bundle defines (`jobs.plan.models_file`).
    Raises `ConfigError` for a config that cannot be read.
    """
    if truth is None:
        return planned_night(place.device, selection, configs)
    local = local_models(selection.models_file, selection.models)
    wanted = {parse_config(text).config_id for text in configs}
    cells = [
        cell
        for cell in truth.cells.values()
        if cell.device == place.device
        and names_cell(selection, cell)
        and (not wanted or cell.config.config_id in wanted)
    ]
    refused = {cell.cell_id: reason for cell in cells if (reason := refusal(cell, local))}
    kept = [cell for cell in cells if cell.cell_id not in refused]
    left_out = list(dict.fromkeys(refused.values())) if cells else [f"{truth.name} has no such cell with code"]
    return Plan(kept, left_out=left_out, own_models=tuple(local.values()))


def _take(run: CensusRun, memory: CensusMemory, agreement: Agreement | None, out: Console, as_json: bool) -> None:
    """Generate every cell and show it, and keep what a comparison with a night says of the answers."""
    equal: list[CensusCell] = []
    answers = memory.answers | (agreement.truth.answers if agreement else {})
    for count, one in enumerate(run.take(answers), start=1):
        word = agreement.took(one) if agreement else ""
        equal += [one] if word == EQUAL else []
        _show(one, f"[{count}/{len(run.cells)}]", word, out, as_json)
    if agreement:
        memory.learn(agreement.truth.name, equal, agreement.differing)


def _show(one: CensusCell, number: str, word: str, out: Console, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(one.to_json() | ({"against": word} if word else {})))
        return
    parts = [number, str(one.cell), one.describe(), word, f"({one.measurement.wall_s:.1f} s)"]
    say(out, "  ".join(part for part in parts if part))


def _show_commits(
    found: Iterable[CommitCensus], store: Callable[[Path], str] | None, out: Console, as_json: bool
) -> None:
    """Show and store each commit as it is done, then show a table of the commits that changed code."""
    table = FittingTable(["commit", "model", "phase", "dtype", "config", "code before", "code"])
    before: dict[str, str | None] = {}
    for one in found:
        if as_json:
            click.echo(json.dumps(one.to_json()))
        else:
            say(out, f"{one.sha[:10]}  {one.title[:60]}  {one.describe()}")
        if store and one.bundle:
            say(out, store(one.bundle))
        for changed in one.changed:
            cell = changed.cell
            row = (cell.model, cell.phase.value, cell.dtype, cell.config.name, before[cell.cell_id])
            table.add_row(one.sha[:10], *map(str, row), str(changed.code_id))
        before |= {cell_id: cell.code_id for cell_id, cell in one.cells.items() if cell.is_known}
    if table.rows and not as_json:
        out.print(table)


def _summarise(out: Console, agreement: Agreement) -> None:
    table = FittingTable(["against", "cells", "known", "equal", "differing", "with questions", "not in the night"])
    counts = (agreement.cells, agreement.known, agreement.equal, len(agreement.differing), agreement.asked)
    table.add_row(agreement.truth.name, *map(str, (*counts, agreement.not_measured)))
    out.print(table)
    for one in agreement.differing.values():
        say(out, f"differs: {one.cell}")
    if not agreement.compared:
        say(out, f"no cell could be compared: {agreement.truth.name} has none of them, of this software, with code")
