"""A database against itself: is it sound, and are the sums that it keeps those of its rows?"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import (
    Connection,
    ForeignKeyConstraint,
    LargeBinary,
    Row,
    and_,
    exists,
    func,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError

from db.arrays import unpack
from db.base import Base
from db.connecting import Source, connected
from db.errors import DamagedError, one_line
from db.packing.packed import STORED, metrics_of_run, packed_rows, stored_parts
from db.packing.packed_sums import stored_sums
from db.packing.summaries import computed
from db.schema import CellRow, Evidence, Meta, Run, Samples, Summary, measurements

Kind = Literal["missing", "extra", "different", "broken"]

#: Findings of one kind that are listed; the rest of them are counted.
_EACH = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong: `missing` from the database, `extra` in it, `different` in it, or `broken` whatever one expects.

    `subject` is the public name of what it is about, where there is one; `text` says what in one line.
    """

    kind: Kind
    subject: str
    text: str


def check_store(source: Source) -> list[Finding]:
    """What contradicts itself in a database: pages, references, blobs, the sums and counts of runs, its revision.

    Raises:
        StoreError: it cannot be read.
        DamagedError: a file whose pages are damaged, so that nothing that it says can be relied upon.
    """
    with connected(source) as conn:
        _check_pages(conn)
        return [*_revision(conn), *_references(conn), *_sums(conn), *_blobs(conn)]


def _check_pages(conn: Connection) -> None:
    if conn.dialect.name != "sqlite":
        return
    try:
        said = conn.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    except DBAPIError as error:
        said = [str(error.orig)]
    if list(said) != ["ok"]:
        raise DamagedError(
            f"the database is damaged ({one_line('; '.join(map(str, said)), 160)}):"
            " run `inductor-watch db rebuild NEW_DB BUNDLES...`, the bundles hold everything"
        )


def _revision(conn: Connection) -> Iterator[Finding]:
    value = conn.execute(select(Meta.value).where(Meta.key == "revision")).scalar()
    if value is None or not value.isdecimal():
        yield Finding("broken", "revision", f"the revision of the data is {one_line(str(value))}, which is no number")


def _references(conn: Connection) -> Iterator[Finding]:
    """Rows that refer to rows which are not there."""
    for table in Base.metadata.sorted_tables:
        for constraint in table.foreign_key_constraints:
            if count := _dangling(conn, constraint):
                names = ", ".join(column.name for column in constraint.columns)
                other = constraint.referred_table.name
                yield Finding(
                    "broken", table.name, f"{count} rows of {table.name} refer by {names} to no row of {other}"
                )


def _dangling(conn: Connection, constraint: ForeignKeyConstraint) -> int:
    table, other = constraint.table, constraint.referred_table.alias()
    pairs = [(element.parent, other.c[element.column.name]) for element in constraint.elements]
    refers = and_(*(mine.is_not(None) for mine, _ in pairs))
    there = exists().where(and_(*(mine == theirs for mine, theirs in pairs))).correlate(table)
    return int(conn.execute(select(func.count()).select_from(table).where(refers, ~there)).scalar_one())


def _sums(conn: Connection) -> Iterator[Finding]:
    for run in conn.execute(select(Run).order_by(Run.id)).all():
        try:
            metrics, (rows, counts, packed) = metrics_of_run(conn, run.id, STORED), computed(conn, run.id)
        except DamagedError:
            yield _not_packed(run, "measurements")
            continue
        for name, value in counts.items():
            if getattr(run, name) != value:
                yield Finding(
                    "different",
                    run.run_id,
                    f"run {one_line(run.run_id)} says {getattr(run, name)} {name}: its rows {value}",
                )
        stored = {_group(row): row for row in map(dict, conn.execute(_summaries(run.id)).mappings())}
        expected = {_group(row): row for row in rows}
        for group in sorted(stored.keys() ^ expected.keys() | {g for g in stored if stored[g] != expected.get(g)}):
            yield Finding(
                "different", run.run_id, f"run {one_line(run.run_id)}: the sums of {group} are not those of its rows"
            )
        measured = [dict(row) for row in conn.execute(_measured(run.id)).mappings()]
        measured = [row | metrics.get((row["cell"], row["replicate"]), {}) for row in measured]
        if stored_parts(conn, run.id) != packed_rows(conn, run.id, measured):
            yield _not_packed(run, "measurements")
        if stored_sums(conn, run.id) != {row["part"]: row["data"] for row in packed}:
            yield _not_packed(run, "sums")


def _not_packed(run: Row[Any], what: str) -> Finding:
    return Finding(
        "different", run.run_id, f"run {one_line(run.run_id)}: what is packed of its {what} is not what they are"
    )


def _measured(run: int) -> Any:
    row = measurements.c
    return select(row.cell, row.replicate, row.status, row.program).where(row.run == run)


def _summaries(run: int) -> Any:
    return select(Summary.__table__).where(Summary.run == run)


def _group(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("suite", "phase", "dtype", "device", "config"))


def _blobs(conn: Connection) -> Iterator[Finding]:
    """Samples and texts that cannot be unpacked, and samples that are not as many as they should be."""
    for run, run_id in conn.execute(select(Run.id, Run.run_id).order_by(Run.id)).all():
        bad = [row for row in conn.execute(_samples(run)) if not _whole(row)]
        bad += [row for row in conn.execute(_texts(run)) if not (_unpacks(row.details) and _unpacks(row.log_tail))]
        for row in bad[:_EACH]:
            what = getattr(row, "metric", "evidence")
            yield Finding(
                "broken", run_id, f"run {one_line(run_id)}, cell {row.cell_id}: {one_line(what)} cannot be read"
            )
        if len(bad) > _EACH:
            yield Finding("broken", run_id, f"run {one_line(run_id)}: {len(bad) - _EACH} more that cannot be read")


def _samples(run: int) -> Any:
    columns = (CellRow.cell_id, Samples.metric, Samples.count.label("size"), Samples.number_format, Samples.data)
    kept = or_(Samples.data.is_not(None), Samples.number_format.is_not(None))
    return select(*columns).join(CellRow, CellRow.id == Samples.cell).where(Samples.run == run, kept)


def _texts(run: int) -> Any:
    raw = [type_coerce(column, LargeBinary).label(column.key) for column in (Evidence.details, Evidence.log_tail)]
    return select(CellRow.cell_id, *raw).join(CellRow, CellRow.id == Evidence.cell).where(Evidence.run == run)


def _whole(row: Row[Any]) -> bool:
    if row.data is None or row.number_format is None:
        return False
    try:
        return len(unpack(row.number_format, row.data)) == int(row.size)
    except (zlib.error, ValueError, TypeError):
        return False


def _unpacks(data: bytes | None) -> bool:
    try:
        if data is not None:
            zlib.decompress(data)
    except zlib.error:
        return False
    return True
