"""Mutated bundles, plain and gzipped: a result or the one-line error, and every line that was left whole is stored."""

from __future__ import annotations

import gzip
import time
import traceback
import zlib
from pathlib import Path

from sqlalchemy import Connection, select

from collector.bundle import BundleError
from collector.vocabulary import Measurement
from db.errors import StoreError
from db.incoming import read_incoming
from db.ingest import ingest_bundle
from db.schema import CellRow, Run, measurements
from tests.chaos import material
from tests.chaos.mutators import mutate
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import header, new_store, passing, write_bundle

#: A cell with its replicate, and two values of its line, by which the line is known again.
Row = tuple[tuple[str, int], tuple[float, float | None]]
Rows = dict[tuple[str, int], tuple[float, float | None]]
#: Of so many inputs one goes into a store; the others are made ready for it, which is where the odd things happen.
_EACH = 8


def plain(setting: Setting) -> Tally:
    """Plain bundles, as an open run has them."""
    return _run(setting, "mutated: plain bundle", setting.amount(3000, 40), is_packed=False)


def packed(setting: Setting) -> Tally:
    """Gzipped bundles, as a closed run has them."""
    return _run(setting, "mutated: gzipped bundle", setting.amount(1500, 20), is_packed=True)


def _run(setting: Setting, name: str, tries: int, *, is_packed: bool) -> Tally:
    tally = Tally(name)
    items = [passing(cell, rounds=5, wall_s=float(number)) for number, cell in enumerate(material.cells_of())]
    source = write_bundle(setting.folder, header("m"), items, closed=False).read_bytes()
    data = gzip.compress(source, mtime=0) if is_packed else source
    path = setting.folder / ("mutated.jsonl.gz" if is_packed else "mutated.jsonl")
    engine = new_store(setting.folder / "mutated.db")
    began = time.monotonic()
    with engine.connect() as conn:
        for number in range(tries):
            kind, changed = mutate(data, setting.rng)
            path.write_bytes(changed)
            whole = _text_before_the_change(data, changed) if is_packed else changed
            rows = _try(tally, conn if number % _EACH == 0 else None, path, source, whole, kind)
            if rows is not None:
                _check(setting, tally, rows, _untouched(source, whole), kind)
    engine.dispose()
    rate = tries / (time.monotonic() - began)
    tally.notes.append(f"{rate:.0f} inputs a second; one of {_EACH} was stored and read back, the others read")
    return tally


def _text_before_the_change(data: bytes, changed: bytes) -> bytes:
    """What those compressed bytes say that come before the first changed one: nobody can know more."""
    same = next((i for i, (one, two) in enumerate(zip(data, changed, strict=False)) if one != two), None)
    return zlib.decompressobj(wbits=31).decompress(changed[: min(len(data), len(changed)) if same is None else same])


def _try(tally: Tally, conn: Connection | None, path: Path, source: bytes, whole: bytes, kind: str) -> list[Row] | None:
    """The rows that an input came to; None if it was refused, or worse."""
    tally.tries += 1
    try:
        rows, damage = _read(path) if conn is None else _store(conn, path)
    except (BundleError, StoreError) as error:
        tally.hits["refused in one line"] += 1
        if "\n" in str(error) or not str(error).isprintable():
            tally.err(f"{kind}: the error has several lines: {error!r}")
        if whole.split(b"\n")[0] == source.split(b"\n")[0] and b"\n" in whole:
            tally.lose(len(_untouched(source, whole)) + 1, f"{kind}: refused though its first line was whole: {error}")
        return None
    except Exception as error:
        tally.trace(f"{kind}: {type(error).__name__}: {error} {traceback.format_exc(limit=-2)}")
        return None
    tally.hits["taken, damage told" if damage else "taken"] += 1
    return rows


def _read(path: Path) -> tuple[list[Row], bool]:
    found = read_incoming(path)
    rows = [(key, (item.row["wall_s"], item.row["speedup"])) for key, item in found.measurements.items()]
    return rows, bool(found.damage)


def _store(conn: Connection, path: Path) -> tuple[list[Row], bool]:
    """Into the store and out again; then it is undone, which costs less than a store of its own."""
    transaction = conn.begin()
    try:
        report = ingest_bundle(conn, path)
        row = measurements.c
        query = select(CellRow.cell_id, row.replicate, row.wall_s, row.speedup).join(CellRow, CellRow.id == row.cell)
        query = query.join(Run, Run.id == row.run).where(Run.run_id == report.run_id)
        rows: list[Row] = [
            ((cell_id, replicate), (wall_s, speedup)) for cell_id, replicate, wall_s, speedup in conn.execute(query)
        ]
        return rows, bool(report.damage)
    finally:
        transaction.rollback()


def _untouched(source: bytes, whole: bytes) -> Rows:
    """The measurements of lines that are as they were; not those of cells about which a changed line says something."""
    before = set(source.split(b"\n"))
    found: Rows = {}
    contested: set[tuple[str, int]] = set()
    for line in whole.split(b"\n")[:-1]:
        if item := _measurement(line):
            key = item.cell.cell_id, item.replicate
            if line in before:
                found[key] = item.wall_s, item.metrics["speedup"]
            else:
                contested.add(key)
    return {key: value for key, value in found.items() if key not in contested}


def _measurement(line: bytes) -> Measurement | None:
    record = material.as_record(line)
    if record is None or record.get("record") != "measurement":
        return None
    try:
        return Measurement.from_json(record)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _check(
    setting: Setting,
    tally: Tally,
    rows: list[Row],
    must: Rows,
    kind: str,
) -> None:
    if must and rows and setting.sabotage in ("drop-a-row", "double-a-row"):
        rows = [row for row in rows if row[0] != next(iter(must))] if "drop" in setting.sabotage else [*rows, rows[0]]
        setting.sabotage = ""
    found = dict(rows)
    tally.double(len(rows) - len(found), f"{kind}: rows")
    tally.lose(len(set(must) - set(found)), f"{kind}: lines that were whole")
    if any(found[key] != value for key, value in must.items() if key in found):
        tally.err(f"{kind}: a line that was whole is stored with other values")
