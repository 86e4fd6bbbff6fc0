"""Find a stored cell that failed and the part of the compiler that it fails with, and store the explanation in its bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd

from collector.bundle import BundleContents, BundleWriter, RunHeader, read_bundle
from collector.failures import EXPLAINABLE, Explanation
from collector.own_models import OwnModel
from collector.usage_errors import ExpectedError
from collector.vocabulary import Measurement
from db.connecting import Source
from db.queries import details
from db.queries.cells import CellFilter, expand_patterns
from db.queries.side_rows import side_rows
from db.queries.sides import resolve_side
from jobs.builds.overlay import Wheel
from jobs.output.terminal import the_first
from jobs.plan.models_file import check_local
from jobs.plan.spared_cells import SAME_PROGRAM
from jobs.pool.device_slots import holding_for
from jobs.pool.resuming import Unfinished, check_torch
from jobs.pool.runner import Pool, now, scheduler_for
from jobs.pool.testbeds import cell_variables, find_testbeds


class NotExplainableError(ExpectedError):
    """An error for a cell that does not exist or cannot be explained; its text says why."""


def failing_cell(source: Source, run: str, cell: str, chosen: CellFilter) -> tuple[str, str]:
    """Return the run_id and cell_id of the failed cell of `run` that `cell` (MODEL, SUITE/MODEL or cell_id) and `chosen` name.

    Raises:
        SideError, FilterError: the database knows no such run, model or config.
        NotExplainableError: no cell of that name failed in the run, or several did.
    """
    side = resolve_side(source, run)
    is_id = details.cell(source, cell) is not None
    rows = side_rows(
        source, side, expand_patterns(source, chosen if is_id else replace(chosen, models=(cell,))), metrics=()
    )
    rows = rows[rows["cell_id"] == cell] if is_id else rows
    failed = rows[rows["status"].isin(EXPLAINABLE)]
    if len(failed) == 1:
        return str(failed.iloc[0]["run_id"]), str(failed.iloc[0]["cell_id"])
    if len(failed):
        raise NotExplainableError(
            f"{len(failed)} cells of {cell} failed in {run}: choose with --config, --phase, --dtype or --device, or a "
            f"cell_id: {_named(failed)}"
        )
    takes = f"`explain` takes a cell that ended in {', '.join(EXPLAINABLE[:-1])} or {EXPLAINABLE[-1]}"
    raise NotExplainableError(f"no cell of {cell} failed in {run} ({_named(rows) or 'it has none'}): {takes}")


def _named(rows: pd.DataFrame) -> str:
    columns = ["cell_id", "phase", "dtype", "config", "status"]
    return the_first(["{} {} {} {}: {}".format(*row) for row in rows[columns].fillna("missing").to_numpy()])


def _without_folders(header: RunHeader) -> RunHeader:
    """Return the header with settings that write no traces and share no tuning."""
    asked = header.asked or {}
    settings = asked.get("settings")
    if not isinstance(settings, Mapping):
        return header
    return replace(header, asked={**asked, "settings": {**settings, "trace": "", "shared_tuning": ""}})


def explain(
    path: Path, cell_id: str, timeout_s: float, local: Mapping[str, OwnModel], overlays: Path | None = None
) -> Explanation:
    """Explain a failed cell of a bundle with torch's compiler bisector and the options of the cell's run. Write nothing.

    Of a user's own models only the `local` ones are called. Torch is imported from an overlay only if that is in `overlays`.

    Raises:
        ConfigError: the bundle lacks the run's options, or this machine has another torch than measured the cell.
        NotExplainableError: the cell is not compiled by `torch.compile` with Inductor, or the process gave no answer.
        HostError: torch or the device is not here.
    """
    contents = read_bundle(path)
    cell = contents.latest()[cell_id].cell
    if cell.config.backend != "inductor":
        raise NotExplainableError(f"{cell}: torch's compiler bisector takes back-end inductor only")
    check_local([cell], local)
    # Nothing is kept of these compilations, neither traces nor tuning results.
    run = Unfinished(
        path,
        replace(contents, planned=[cell], header=_without_folders(contents.header)),
        retry_failed=True,
        own_models=local,
        overlays=(overlays,) if overlays else (),
    )
    requested = replace(run.requested, settings=replace(run.requested.settings, own_models=tuple(local.values())))
    execution = replace(requested.execution, workers=1, gpus=None)
    check_torch(contents.header, Wheel.installed().commit)
    with holding_for(cell.device, None):
        (testbed,) = find_testbeds(cell.device, execution, serve=True)
        testbed.import_for([cell])
        settings = replace(requested.settings, explain=True, timeout_s=timeout_s)
        scheduler = scheduler_for(testbed, [cell], settings, cell_variables(execution.start))
        with closing(Pool([scheduler]).run()) as outcomes:
            ((_, outcome),) = outcomes
    if explanation := Explanation.of(outcome.measurement.details):
        return explanation
    failure = outcome.measurement.failure
    why = f"{failure.exception}: {failure.message}" if failure else "no answer"
    raise NotExplainableError(f"the process that looked for the cause of {cell} ended without one: {why}")


def keep(path: Path, cell_id: str, explanation: Explanation) -> Path:
    """Add the explanation to the evidence of the cell's measurement, as a further record in its bundle; return its path.

    The other names of the cell's program get the explanation, too. A bundle that was closed is closed again.
    """
    writer, contents = BundleWriter.reopen(path, now())
    for measurement in _of_one_program(contents, cell_id):
        explanation.added_to(measurement)
        writer.measurement(measurement)
    if contents.finished_at:
        return writer.close(contents.finished_at)
    writer.abandon()
    return writer.path


def _of_one_program(contents: BundleContents, cell_id: str) -> Sequence[Measurement]:
    latest = contents.latest()
    own = latest[cell_id]
    name = own.details.get(SAME_PROGRAM, own.cell.config.name)
    return [
        item
        for item in latest.values()
        if name in (item.cell.config.name, item.details.get(SAME_PROGRAM))
        and replace(item.cell, config=own.cell.config) == own.cell
    ]
