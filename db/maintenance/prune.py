"""Removes old samples, evidence and runs by age, and single runs by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, delete, func, or_, select, update

from db.connecting import changing, chunks, connected
from db.queries.details import codes
from db.regression_records import OPEN
from db.schema import Base, Branch, CodeRow, CodeText, Commit, Evidence, Regression, Run, Samples, Series, measurements
from db.store_errors import SideError, StoreError, nearest, one_line
from db.stored_values import from_epoch


@dataclass(frozen=True, slots=True)
class Ages:
    """How long rows are kept: raw samples no longer than evidence, evidence no longer than runs. None keeps them for ever."""

    samples: timedelta | None
    evidence: timedelta | None
    runs: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What went. `samples` and `evidence` are rows whose values or texts went, `kept` runs that a regression holds back.

    `guarded` counts pairs of a run and a cell that open regressions protect, over all ages.
    """

    samples: int
    evidence: int
    runs: tuple[str, ...]
    measurements: int
    kept: tuple[str, ...]
    guarded: int


def prune(target: Engine, ages: Ages, now: datetime, *, dry_run: bool = False) -> PruneReport:
    """Thins out what is older, at `now`, than its age; the age of a row is that of its run's start. One transaction.

    Samples keep their count and spread. Of an open regression (new, confirmed, acknowledged, returned) every row of its
    cell on its branch and testbed stays as it is, from its base on; where the base is not known, all of them. A run
    that holds such a row is not dropped. A dry run says what would go, and changes nothing. Raises `StoreError` for
    ages in an order that makes no sense, or where the database cannot be written. Nothing is half-done.
    """
    _check(ages)
    if dry_run:
        with connected(target) as conn:
            return _prune(conn, ages, now, dry_run=True)
    with changing(target) as change:
        report = _prune(change.conn, ages, now, dry_run=False)
        change.made = bool(report.samples or report.evidence or report.runs)
        return report


@dataclass(frozen=True, slots=True)
class RemovedRun:
    """A run that was removed: counts of its cells, the file name of its bundle, and what loses it as base or onset.

    `records` are the names of those regressions; they keep their commits and values.
    """

    run_id: str
    night: str
    branch: str
    commit: str
    started_at: datetime
    measurements: int
    missing: int
    bundle: str
    records: tuple[str, ...]


def remove_run(target: Engine, run_id: str, *, dry_run: bool = False) -> RemovedRun:
    """Removes a run with all that it measured, whatever refers to it. Its bundle stays, and would bring it back.

    A dry run says what would go, and changes nothing. Raises `SideError` where there is no run of this name, and
    `StoreError` where the database cannot be written.
    """
    if dry_run:
        with connected(target) as conn:
            return _removed(conn, run_id)[1]
    with changing(target) as change:
        key, removed = _removed(change.conn, run_id)
        change.conn.execute(delete(Run).where(Run.id == key))
        _drop_unused_code(change.conn)
        change.made = True
        return removed


def _removed(conn: Connection, run_id: str) -> tuple[int, RemovedRun]:
    run = conn.execute(
        select(Run, Commit.sha).join(Commit, Commit.id == Run.commit).where(Run.run_id == run_id)
    ).first()
    if run is None:
        known = nearest(run_id, conn.execute(select(Run.run_id)).scalars())
        raise SideError(f"no run {one_line(run_id)!r}{known}")
    of_run = or_(Regression.base_run == run.id, Regression.onset_run == run.id)
    records = conn.execute(select(Regression.regression_id).where(of_run).order_by(Regression.regression_id)).scalars()
    counts = (run.measured, run.planned - run.measured)
    place = (run.run_id, run.night, run.branch, run.sha, from_epoch(run.started_at))
    return run.id, RemovedRun(*place, *counts, run.bundle, tuple(records))


def vacuum(target: Engine) -> None:
    """Gives the room of what went back to the disk. It needs as much room again while it works, and nobody else writing."""
    if target.dialect.name == "postgresql":
        with connected(target.execution_options(isolation_level="AUTOCOMMIT")) as conn:
            conn.exec_driver_sql("VACUUM (ANALYZE)")
        return
    with closing(target.raw_connection()) as raw:  # below the transaction that every connection of the engine begins
        raw.cursor().execute("VACUUM")
        raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _check(ages: Ages) -> None:
    given = [age for age in (ages.samples, ages.evidence, ages.runs) if age is not None]
    if given != sorted(given):
        raise StoreError("samples are thinned out first, then evidence, then runs: no later one may have a lower age")
    if any(age < timedelta(0) for age in given):
        raise StoreError("an age is no less than nothing")


def _prune(conn: Connection, ages: Ages, now: datetime, *, dry_run: bool) -> PruneReport:
    guarded = _guarded(conn)
    old = _older(conn, now, ages.runs)
    held = {run for run, _ in old if _measured(conn, run, guarded[run])}
    dropped = {run: name for run, name in old if run not in held}
    gone = sum(_measured(conn, run, None) for run in dropped)
    for run in () if dry_run else dropped:
        conn.execute(delete(Run).where(Run.id == run))
    if dropped and not dry_run:
        _drop_unused_code(conn)
    samples, evidence = (
        sum(
            _thin(conn, table, columns, run, guarded[run], dry_run)
            for run, _ in _older(conn, now, age)
            if run not in dropped
        )
        for table, columns, age in (
            (Samples, ("data", "number_format"), ages.samples),
            (Evidence, ("details", "log_tail"), ages.evidence),
        )
    )
    kept = tuple(name for run, name in old if run in held)
    return PruneReport(samples, evidence, tuple(dropped.values()), gone, kept, sum(map(len, guarded.values())))


def _drop_unused_code(conn: Connection) -> None:
    """Removes generated code that no measurement has any more, and the texts that no code has."""
    used = select(measurements.c.code_id).where(measurements.c.code_id.is_not(None))
    conn.execute(delete(CodeRow).where(CodeRow.code_id.not_in(used)))
    left = codes(conn, conn.execute(select(CodeRow.code_id)).scalars()).values()
    unused = set(conn.execute(select(CodeText.text_id)).scalars()).difference(*(code.text_ids for code in left))
    for chunk in chunks(sorted(unused)):
        conn.execute(delete(CodeText).where(CodeText.text_id.in_(chunk)))


def _older(conn: Connection, now: datetime, age: timedelta | None) -> list[tuple[int, str]]:
    if age is None:
        return []
    before = (now - age).timestamp()
    query = select(Run.id, Run.run_id).where(Run.started_at < before).order_by(Run.started_at, Run.run_id)
    return [(row.id, row.run_id) for row in conn.execute(query)]


def _guarded(conn: Connection) -> defaultdict[int, set[int]]:
    """By run the cells that open regressions are about, from their base on."""
    base = Run.__table__.alias()
    query = (
        select(Run.id, Series.cell)
        .select_from(Regression)
        .join(Series, Series.id == Regression.series)
        .join(Branch, Branch.id == Series.branch)
        .join(Run, (Run.branch == Branch.name) & (Run.testbed == Series.testbed))
        .join(Commit, (Commit.id == Run.commit) & (Commit.repo == Branch.repo))
        .outerjoin(base, base.c.id == Regression.base_run)
        .where(Regression.state.in_(OPEN), or_(base.c.id.is_(None), Run.started_at >= base.c.started_at))
    )
    cells: defaultdict[int, set[int]] = defaultdict(set)
    for run, cell in conn.execute(query):
        cells[run].add(cell)
    return cells


def _measured(conn: Connection, run: int, cells: set[int] | None) -> int:
    query = select(func.count()).select_from(measurements).where(measurements.c.run == run)
    if cells is not None:
        query = query.where(measurements.c.cell.in_(sorted(cells)))
    return int(conn.execute(query).scalar_one())


def _thin(
    conn: Connection, table: type[Base], columns: Sequence[str], run: int, guarded: set[int], dry_run: bool
) -> int:
    """Sets the columns to NULL in the rows of a run that have any of them; how many rows that are."""
    of = table.__table__.c
    where = [of.run == run, or_(*(of[name].is_not(None) for name in columns))]
    if guarded:
        where.append(of.cell.not_in(sorted(guarded)))
    if dry_run:
        return int(conn.execute(select(func.count()).select_from(table).where(*where)).scalar_one())
    return int(conn.execute(update(table).where(*where).values(dict.fromkeys(columns))).rowcount)
