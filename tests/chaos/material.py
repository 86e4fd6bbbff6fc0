"""What is broken here: a few synthetic bundles, the store that they make undisturbed, and what a store lacks of it."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from collector.bundle import read_bundle
from collector.vocabulary import Cell
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.runs import list_runs
from db.schema import CellRow, Run, measurements
from tests.chaos.tally import Tally
from tests.db.answers import answers
from tests.factories import CUDAGRAPHS, DEFAULT, failing, header, matrix, new_store, passing, write_bundle

#: Run, cell, replicate.
Key = tuple[str, str, int]
MODELS = ("bert", "gpt2")


def cells_of(models: tuple[str, ...] = MODELS) -> list[Cell]:
    """Every model under two configs."""
    return matrix(models, (DEFAULT, CUDAGRAPHS))


def three_runs(folder: Path, rounds: int = 9) -> list[Path]:
    """A night, a later one in which a cell failed, and one that was interrupted half-way."""
    cells = cells_of()
    first = [passing(item, rounds=rounds) for item in cells]
    second = [passing(item, minutes=61, seed=1, slower=1.1, rounds=rounds) for item in cells[1:]]
    second.append(failing(cells[0], minutes=62))
    third = [passing(item, minutes=121, seed=2, rounds=rounds) for item in cells[:2]]
    return [
        write_bundle(folder, header("r0"), first),
        write_bundle(folder, header("r1", minutes=60, commit="b2" * 20), second),
        write_bundle(folder, header("r2", minutes=120), third, planned=cells, closed=False),
    ]


def keys_of(bundles: list[Path]) -> set[Key]:
    """What a store should hold of these bundles."""
    found: set[Key] = set()
    for path in bundles:
        contents = read_bundle(path)
        found |= {(contents.header.run_id, item.cell.cell_id, item.replicate) for item in contents.measurements}
    return found


@dataclass(slots=True)
class Reference:
    """Bundles, and all that a store answers into which nobody meddled."""

    bundles: list[Path]
    answers: dict[str, Any]
    keys: set[Key]
    by_run: dict[str, set[Key]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.keys:
            self.by_run.setdefault(key[0], set()).add(key)

    @property
    def words(self) -> list[str]:
        """The bundles as arguments."""
        return [str(path) for path in self.bundles]


def make_reference(folder: Path, make: Callable[[Path], list[Path]] = three_runs) -> Reference:
    """Makes bundles in the folder, and an undisturbed store of them."""
    bundles = make(folder)
    path = folder / "reference.db"
    engine = new_store(path)
    for bundle in bundles:
        ingest_bundle(engine, bundle)
    found = Reference(bundles, answers(engine), keys_of(bundles))
    engine.dispose()
    return found


def stored_keys(engine: Engine) -> Counter[Key]:
    """What a store holds; each counts once unless something is doubled."""
    columns = (Run.run_id, CellRow.cell_id, measurements.c.replicate)
    query = select(*columns).join(Run, Run.id == measurements.c.run).join(CellRow, CellRow.id == measurements.c.cell)
    with engine.connect() as conn:
        return Counter((row[0], row[1], row[2]) for row in conn.execute(query))


def check_after_kill(tally: Tally, place: str, reference: Reference, promised: set[str]) -> None:
    """Runs that were acknowledged are there, each run is whole or absent, the file is sound."""
    try:
        engine = open_store(place, write=False)
    except StoreError as error:
        if promised:
            tally.lose(len(promised), f"runs {sorted(promised)}: {error}")
        elif not any(words in str(error) for words in ("no database here", "is empty", "older than this")):
            tally.err(str(error))
        return
    try:
        found, runs = stored_keys(engine), {run.run_id: run for run in list_runs(engine)}
    finally:
        engine.dispose()
    check_sound(tally, place)
    for run_id in sorted({*runs, *promised}):
        whole = reference.by_run.get(run_id, set())
        there = {key for key in found if key[0] == run_id}
        if whole - there:
            tally.lose(len(whole - there), f"cells of run {run_id}")
        if run_id not in runs or runs[run_id].measured != len(whole):
            tally.err(f"run {run_id} is half-written")
    tally.double(len(set(found) - reference.keys) + sum(count - 1 for count in found.values()), "cells after a kill")


def check_answers(tally: Tally, place: str, reference: Reference, what: str) -> None:
    """A store holds each cell once and answers as the undisturbed one does."""
    engine = open_store(place, write=False)
    try:
        found = stored_keys(engine)
        told = answers(engine)
    finally:
        engine.dispose()
    check_sound(tally, place)
    tally.lose(len(reference.keys - set(found)), f"cells {what}")
    tally.double(len(set(found) - reference.keys) + sum(count - 1 for count in found.values()), f"cells {what}")
    if told != reference.answers:
        names = [name for name in {*told, *reference.answers} if told.get(name) != reference.answers.get(name)]
        tally.err(f"answers differ {what}: {sorted(names)[:3]}")


def integrity(path: str | Path) -> list[str]:
    """What SQLite's own check says of a file: `['ok']` for a sound one."""
    connection = sqlite3.connect(path)
    try:
        return [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        return [str(error)]
    finally:
        connection.close()


def check_sound(tally: Tally, place: str) -> None:
    """A SQLite file passes its integrity check; a server looks after its own."""
    if "://" not in place and (said := integrity(place)) != ["ok"]:
        tally.err(f"integrity check: {said[0]}")


def drop_line(path: Path) -> None:
    """Sabotage: takes the last measurement out of a bundle."""
    _rewrite(path, lambda lines: [line for i, line in enumerate(lines) if i != _last_measurement(lines)])


def double_line(path: Path) -> None:
    """Sabotage: repeats the last measurement of a bundle."""
    _rewrite(path, lambda lines: [*lines, lines[_last_measurement(lines)]])


def _last_measurement(lines: list[bytes]) -> int:
    found = [i for i, line in enumerate(lines) if b'"record":"measurement"' in line]
    return found[-1]


def _rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    packed = path.name.endswith(".gz")
    data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    lines = change(data.splitlines(keepends=True))
    path.write_bytes(gzip.compress(b"".join(lines)) if packed else b"".join(lines))


def drop_row(engine: Engine) -> None:
    """Sabotage: takes one measurement out of a store."""
    with engine.begin() as conn:
        row = conn.execute(select(measurements.c.run, measurements.c.cell).limit(1)).one()
        where = (measurements.c.run == row.run, measurements.c.cell == row.cell)
        conn.execute(measurements.delete().where(*where))


def double_row(engine: Engine) -> None:
    """Sabotage: repeats one measurement of a store under another replicate."""
    with engine.begin() as conn:
        row = conn.execute(select(measurements).limit(1)).mappings().one()
        conn.execute(measurements.insert(), {**row, "replicate": 77})


def remove_store(path: Path) -> None:
    """Removes a SQLite file and what lies beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def copy_store(source: Path, target: Path) -> None:
    """A store without its side files, which a closed one has not."""
    remove_store(target)
    shutil.copyfile(source, target)


def as_record(line: bytes) -> dict[str, Any] | None:
    """A line as a JSON object, or None."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
