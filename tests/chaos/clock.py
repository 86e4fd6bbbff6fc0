"""A clock that goes backwards: the order of attempts and lines counts, never the time of day, and nothing is lost."""

from __future__ import annotations

import itertools
from pathlib import Path

from sqlalchemy import Engine

from collector.bundle import BundleWriter
from collector.vocabulary import Cell
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.cells import measurement
from db.runs import list_runs
from tests.chaos import material
from tests.chaos.material import Reference
from tests.chaos.processes import cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import at, header, new_store, passing

#: The last measurement of a cell by line and attempt says this; earlier ones something else.
_LAST_S = 77.0


def run(setting: Setting) -> Tally:
    """Runs whose measurements, attempts, ends and commits are dated backwards, ingested in every order."""
    tally = Tally("clock backwards")
    for number in range(setting.amount(15, 2)):
        folder = setting.folder / f"try{number}"
        folder.mkdir()
        bundles = [_backwards(setting, folder, f"b{run}", run) for run in range(3)]
        reference = material.make_reference(folder, lambda _: bundles)  # noqa: B023
        orders = list(itertools.permutations(bundles))
        for order in setting.rng.sample(orders, 2):
            _try(setting, tally, folder, list(order), reference)
    return tally


def _backwards(setting: Setting, folder: Path, run: str, number: int) -> Path:
    """Each cell measured twice, the later line dated earlier; half of the runs taken up again, earlier still."""
    cells = material.cells_of()
    now = 1000.0 - 100 * number
    head = header(run, minutes=now, commit=f"{number:040x}", commit_date=at(500 - now))
    writer = BundleWriter(folder, head, cells)
    is_resumed = setting.rng.random() < 0.5
    for wall_s in (1.0, 2.0 if is_resumed else _LAST_S):
        now = _measure(setting, writer, cells, now, wall_s)
    if is_resumed:
        writer.abandon()
        writer, _ = BundleWriter.reopen(writer.path, at(now))
        _measure(setting, writer, cells, now, _LAST_S)
    return writer.close(at(now - 500))  # before it began


def _measure(setting: Setting, writer: BundleWriter, cells: list[Cell], now: float, wall_s: float) -> float:
    for cell in cells:
        now -= setting.rng.uniform(0.1, 5)
        writer.measurement(passing(cell, minutes=now, wall_s=wall_s))
    return now


def _try(setting: Setting, tally: Tally, folder: Path, order: list[Path], reference: Reference) -> None:
    path = folder / "backwards.db"
    material.remove_store(path)
    engine = new_store(path)
    for bundle in order:
        ingest_bundle(engine, bundle)
    engine.dispose()
    setting.meddle_store(str(path))
    tally.tries += 1
    material.check_answers(tally, str(path), reference, "in another order")
    engine = open_store(path, write=False)
    try:
        _check_last(tally, engine, reference)
        finished = [run for run in list_runs(engine) if run.finished_at and run.finished_at < run.started_at]
    finally:
        engine.dispose()
    tally.hits["runs that end before they start"] += len(finished)
    for words in (("runs",), ("compare", "b0", "b1"), ("compare", "latest~1", "latest")):
        done = cli(setting.folder, *words, "--db", str(path))
        if done.is_unforeseen:
            tally.trace(f"{words}: {done.err}")
        elif done.code:
            tally.err(f"{words}: exit code {done.code}: {done.err}")


def _check_last(tally: Tally, engine: Engine, reference: Reference) -> None:
    for run_id, cell_id, replicate in sorted(reference.keys):
        found = measurement(engine, run_id, cell_id)
        if found is None:
            tally.lose(1, f"{run_id} {cell_id}")
        elif found.wall_s != _LAST_S:
            tally.err(f"{run_id} {cell_id} replicate {replicate}: an earlier line won ({found.wall_s})")
        else:
            tally.hits["last line won"] += 1
