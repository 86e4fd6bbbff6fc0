"""Remove old samples, evidence and runs, and build a new database from bundles and from data that only the old one has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, inspect, or_, select, text, true, update
from sqlalchemy.exc import DBAPIError

from collector.usage_errors import BundleError, ConfigError
from db.connecting import changing, chunks, connected
from db.engine import file_of, open_store, shown
from db.ingest import IngestReport, ingest_bundle
from db.queries.cells import revision
from db.queries.details import codes
from db.regression_records import OPEN
from db.schema import (
    Base,
    Branch,
    CellRow,
    CodeRow,
    CodeText,
    Commit,
    CommitLink,
    ConfigRow,
    Evidence,
    Meta,
    Model,
    Regression,
    RegressionEvent,
    Run,
    Samples,
    Series,
    Tag,
    Testbed,
    measurements,
)
from db.store_errors import SideError, StoreError, explain, nearest, one_line
from db.stored_values import from_epoch


@dataclass(frozen=True, slots=True)
class Ages:
    """The age limits of rows, which must not fall from raw samples over evidence to runs. None keeps rows for ever."""

    samples: timedelta | None
    evidence: timedelta | None
    runs: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The rows that pruning removed or thinned. `samples` and `evidence` count rows whose values or texts were removed.

    `runs` were dropped, with `measurements` in all; `kept` are old runs that a regression holds back. `guarded` counts pairs of
    a run and a cell that open regressions protect, over all ages.
    """

    samples: int
    evidence: int
    runs: tuple[str, ...]
    measurements: int
    kept: tuple[str, ...]
    guarded: int


def prune(target: Engine, ages: Ages, now: datetime, *, dry_run: bool = False) -> PruneReport:
    """Thin out, in one transaction, the rows whose run started longer before `now` than their age limit.

    Samples keep their count and spread. Of an open regression (new, confirmed, acknowledged, returned) every row of its
    cell on its branch and testbed stays as it is, from its base on; where the base is not known, all of them. A run
    that holds such a row is not dropped. A dry run reports what would go, and changes nothing. Raises `ConfigError` for
    ages in an order that makes no sense, and `StoreError` where the database cannot be written. Nothing is half-done.
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
    """A run that was removed: counts of its cells, the file name of its bundle, and the regressions that refer to it.

    `records` are the names of the regressions that lose the run as base or onset; they keep their commits and values.
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
    """Remove a run with all that it measured, even if regressions refer to it. Its bundle stays, and would bring the run back.

    A dry run reports what would go, and changes nothing. Raises `SideError` where there is no run of this name, and
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
    """Give freed room back to the disk. It needs as much room again while it works, and no other writer."""
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
        raise ConfigError(
            "samples go first, then evidence (--older-than), then runs: no later one may have a lower age"
        )
    if any(age < timedelta(0) for age in given):
        raise ConfigError("an age is no less than nothing")


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
    """Delete generated code that no measurement has any more, and texts that no code has."""
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
    """Return, by run, the cells that open regressions are about, from their base on."""
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
    """Set the columns to NULL in the rows of a run that have a value in any of them, and return the number of rows.

    Rows of `guarded` cells stay. A dry run only counts.
    """
    of = table.__table__.c
    where = [of.run == run, or_(*(of[name].is_not(None) for name in columns))]
    if guarded:
        where.append(of.cell.not_in(sorted(guarded)))
    if dry_run:
        return int(conn.execute(select(func.count()).select_from(table).where(*where)).scalar_one())
    return int(conn.execute(update(table).where(*where).values(dict.fromkeys(columns))).rowcount)


_CHUNK = 5_000
#: Columns of a regression that refer to runs.
_RUNS = ("base_run", "onset_run")
_ALL = true()
_OF_SERIES = CellRow.id.in_(select(Series.cell))
#: Tables whose rows no bundle has, or not all of them, and which rows to copy. They are copied first, with their numbers.
_CARRIED: dict[type[Base], ColumnElement[bool]] = {
    **dict.fromkeys((Commit, CommitLink, Branch, Tag), _ALL),
    # The regressions, with their cells and testbeds, which perhaps no bundle has any more.
    Testbed: Testbed.id.in_(select(Series.testbed)),
    Model: Model.id.in_(select(CellRow.model).where(_OF_SERIES)),
    ConfigRow: ConfigRow.id.in_(select(CellRow.config).where(_OF_SERIES)),
    CellRow: _OF_SERIES,
    **dict.fromkeys((Series, Regression, RegressionEvent), _ALL),
}


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The content of the new database. `lost` are runs of the old one that are in none of the bundles.

    `damage` has a line for each part of the bundles that could not be read, `unread` a line for each file that could not be
    stored. `notes` has the notes of an old schema, a line each, which databases no longer hold.
    """

    runs: int
    measurements: int
    commits: int
    regressions: int
    lost: tuple[str, ...]
    damage: tuple[str, ...]
    unread: tuple[str, ...]
    notes: tuple[str, ...] = ()


def rebuild(
    location: str | Path,
    bundles: Iterable[Path],
    old: Engine | None = None,
    *,
    on_bundle: Callable[[Path, IngestReport], None] | None = None,
) -> RebuildReport:
    """Build a new database from the bundles, in any order.

    Commits with their facts, links and tags, branches with their start, and regressions with their history come from
    `old`, which may have a schema from before the baseline. A file appears when it is complete; on a server all of it is
    one transaction. `on_bundle` is called after each bundle. A file that is no bundle is reported, and the others are
    stored. Raises `BundleError` where none of the files is a bundle, and `StoreError` where there is a database with data
    already, or it cannot be written. There is then no new one.
    """
    with _new(location) as engine:
        return _build(engine, bundles, old, on_bundle)


@contextmanager
def _new(location: str | Path) -> Iterator[Engine]:
    path = file_of(location)
    if path is None:
        engine = open_store(location, write=True)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    if path.exists():
        raise StoreError(f"{shown(location)} is there already: name a new file, nothing is replaced")
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)  # left by an earlier try
    engine = open_store(partial, write=True)
    try:
        yield engine
        # Put the write-ahead log into the file, which then holds the whole database.
        with closing(engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        engine.dispose()
        partial.rename(path)
    finally:
        engine.dispose()
        _remove(partial)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _build(
    engine: Engine, bundles: Iterable[Path], old: Engine | None, on_bundle: Callable[[Path, IngestReport], None] | None
) -> RebuildReport:
    damage: list[str] = []
    unread: list[str] = []
    stored = 0
    with changing(engine) as change:
        for table in (Run, Commit, Regression):
            if change.conn.execute(select(table.id).limit(1)).first() is not None:
                raise StoreError("the new database holds data already: name an empty one, nothing is replaced")
        if old is not None:
            _carry(old, change.conn)
        for path in bundles:
            try:
                report = ingest_bundle(change.conn, path)
            except BundleError as error:
                unread.append(str(error))
                continue
            stored += 1
            damage += [f"{path}: {line}" for line in report.damage]
            if on_bundle:
                on_bundle(path, report)
        if unread and not stored:
            raise BundleError(f"no file is a bundle, the new database is not made: {unread[0]}")
        if old is not None:
            _pin_runs(old, change.conn)
            # A reader that caches by revision must see that this is another database.
            number = revision(change.conn) + revision(old) + 1
            change.conn.execute(update(Meta).where(Meta.key == "revision").values(value=str(number)))
        conn = change.conn
        runs, measured = conn.execute(
            select(func.count(), func.coalesce(func.sum(Run.measured), 0)).select_from(Run)
        ).one()
        commits, regressions = (
            conn.execute(select(func.count()).select_from(table)).scalar_one() for table in (Commit, Regression)
        )
        lost: set[str] = set()
        notes: tuple[str, ...] = ()
        if old is not None:
            notes = _notes(old)
            with connected(old) as source:
                lost.update(source.execute(select(Run.run_id)).scalars())
            lost.difference_update(conn.execute(select(Run.run_id)).scalars())
    return RebuildReport(runs, measured, commits, regressions, tuple(sorted(lost)), tuple(damage), tuple(unread), notes)


def _carry(old: Engine, conn: Connection) -> None:
    """Copy the rows of `_CARRIED`, in the tables and columns that both databases have. Regressions get their runs later."""
    try:
        with old.connect() as source:
            schema = inspect(source)
            there = set(schema.get_table_names())
            for table, wanted in _CARRIED.items():
                # Rows of name tables are chosen through `series`, which is as old as the regressions.
                if table.__tablename__ not in there or (wanted is not _ALL and Series.__tablename__ not in there):
                    continue
                known = {column["name"] for column in schema.get_columns(table.__tablename__)} - set(_RUNS)
                query = select(*(column for column in table.__table__.columns if column.name in known)).where(wanted)
                rows = source.execution_options(yield_per=_CHUNK).execute(query).mappings()
                for part in rows.partitions(_CHUNK):
                    conn.execute(insert(table), [dict(row) for row in part])
    except DBAPIError as error:
        raise explain(error, "the old database") from error
    if conn.dialect.name == "postgresql":
        for table in _CARRIED:
            if "id" in table.__table__.c:
                _count_on(conn, table)


def _pin_runs(old: Engine, conn: Connection) -> None:
    """Set the base and onset runs of the copied regressions: runs have other numbers in the new database."""
    with connected(old) as source:
        if not inspect(source).has_table(Regression.__tablename__):
            return
        for name in _RUNS:
            column = Regression.__table__.c[name]
            for number, run_id in source.execute(select(Regression.id, Run.run_id).join(Run, Run.id == column)):
                run = select(Run.id).where(Run.run_id == run_id).scalar_subquery()
                conn.execute(update(Regression).where(Regression.id == number).values({name: run}))


def _notes(old: Engine) -> tuple[str, ...]:
    """Return the notes that people wrote in a schema from before the baseline, oldest first."""
    with connected(old) as source:
        if not inspect(source).has_table("notes"):
            return ()
        rows = source.execute(text("SELECT subject, name, at, author, text FROM notes ORDER BY at, id")).all()
    return tuple(
        one_line(f"{from_epoch(row.at):%Y-%m-%d} {row.author} on {row.subject} {row.name}: {row.text}", 400)
        for row in rows
    )


def _count_on(conn: Connection, table: type[Base]) -> None:
    """Continue the server's numbers of a table after the highest number that was copied."""
    highest = select(func.max(table.__table__.c.id)).scalar_subquery()
    sequence = func.pg_get_serial_sequence(table.__tablename__, text("'id'"))
    conn.execute(select(func.setval(sequence, func.coalesce(highest, 1), highest.is_not(None))))
