"""Check a database against itself and against bundles: pages, references, blobs, counts, summaries, measurements."""

from __future__ import annotations

import math
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Row,
    RowMapping,
    Text,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError

from collector.masking import hidden_variables, mask
from collector.usage_errors import BundleError
from db.connecting import Source, connected
from db.engine import file_of, open_store, shown
from db.ingest import ingest_bundle
from db.nights import GROUP, computed, find_runs
from db.queries.cells import names_query
from db.schema import (
    Base,
    CellRow,
    ConfigRow,
    Environment,
    Evidence,
    Meta,
    Planned,
    Program,
    Run,
    Samples,
    measurements,
    summaries,
)
from db.store_errors import DamagedError, one_line
from db.stored_values import MaskedJson, MaskedText, PackedText, unpack

Kind = Literal["missing", "extra", "different", "broken", "secret"]

#: The most findings of one kind that are listed for a run; the rest are counted.
_EACH = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a database, in words.

    Its kind is `missing` for something that the database lacks, `extra` for something that no bundle has, `different` for
    another value than expected, `broken` for a fault whatever is expected, or `secret` for a value that no command shows and
    nobody should keep. `subject` is the public name of the thing at fault, where it has one; `text` describes the fault in one
    line.
    """

    kind: Kind
    subject: str
    text: str


def check_store(source: Source) -> list[Finding]:
    """Return the contradictions within a database: pages, references, blobs, counts and summaries of runs, its revision, secrets.

    Raises `StoreError` where it cannot be read, and `DamagedError` for a file whose pages are damaged, so that nothing that
    it says can be relied upon.
    """
    with connected(source) as conn:
        _check_pages(conn)
        return [*_revision(conn), *_references(conn), *_sums(conn), *_blobs(conn), *_secrets(conn)]


def damage_of(place: str | Path | None) -> DamagedError | None:
    """Return the error to report for a damaged file after an unexpected error; None for a sound file, and for a server.

    SQLite keeps no checksums: it notices pages that contradict each other, and no byte that changed within a value.
    """
    path = file_of(place)
    if path is None or not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            answer = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.OperationalError:
        return None  # locked or not readable, which is no damage
    except sqlite3.DatabaseError as error:
        answer = str(error)
    advice = "move it away and ingest the bundles again, they hold everything"
    return None if answer == "ok" else DamagedError(f"{shown(place)} is damaged ({one_line(answer)}); {advice}")


def _check_pages(conn: Connection) -> None:
    if conn.dialect.name != "sqlite":
        return
    try:
        answer = conn.execute(text("PRAGMA integrity_check(3)")).scalars().all()
    except DBAPIError as error:
        answer = [str(error.orig)]
    if list(answer) != ["ok"]:
        raise DamagedError(
            f"the database is damaged ({one_line('; '.join(map(str, answer)), 160)}):"
            " run `inductor-watch db rebuild NEW_DB BUNDLES...`, the bundles hold everything"
        )


def _revision(conn: Connection) -> Iterator[Finding]:
    value = conn.execute(select(Meta.value).where(Meta.key == "revision")).scalar()
    if value is None or not value.isdecimal():
        yield Finding("broken", "revision", f"the revision of the data is {one_line(str(value))}, which is no number")


def _references(conn: Connection) -> Iterator[Finding]:
    """Yield findings for rows of a file that refer to rows which are not there; a server accepts no such row."""
    if conn.dialect.name != "sqlite":
        return
    rows = conn.execute(text("PRAGMA foreign_key_check"))
    for (table, other), count in sorted(Counter((row.table, row.parent) for row in rows).items()):
        yield Finding("broken", table, f"{count} rows of {table} refer to no row of {other}")


def _sums(conn: Connection) -> Iterator[Finding]:
    """Yield findings for stored counts and summaries of runs that differ from the rows of the run."""
    for run in conn.execute(select(Run).order_by(Run.id)).all():
        rows, counts = computed(conn, run.id)
        for name, value in counts.items():
            if getattr(run, name) != value:
                text = f"run {one_line(run.run_id)} says {getattr(run, name)} {name}: its rows {value}"
                yield Finding("different", run.run_id, text)
        stored = [dict(row) for row in conn.execute(select(summaries).where(summaries.c.run == run.id)).mappings()]
        by_group = ({tuple(row[name] for name in GROUP): row for row in some} for some in (stored, rows))
        of_store, expected = by_group
        for group in sorted(group for group in of_store | expected if of_store.get(group) != expected.get(group)):
            text = f"run {one_line(run.run_id)}: the summary of {group} is not that of its rows"
            yield Finding("different", run.run_id, text)


def _blobs(conn: Connection) -> Iterator[Finding]:
    """Yield findings for samples and texts that cannot be unpacked, and for samples whose number is not the stored count."""
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


#: The column that names a row of each table that may hold secrets; rows of other tables are named by their key's numbers.
_NAMES = {
    **{"environments": "environment_id", "testbeds": "testbed_id", "programs": "program_id", "configs": "config_id"},
    **{"commits": "sha", "runs": "run_id", "regressions": "regression_id"},
}


def _secrets(conn: Connection) -> Iterator[Finding]:
    """Yield findings for rows with values that are masked when read: variables that may be secret, passwords and tokens."""
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            if (raw := _unmasked(column)) is None:
                continue
            keys = [table.c[_NAMES[table.name]]] if table.name in _NAMES else [*table.primary_key.columns]
            for *key, value in conn.execute(select(*keys, raw).where(column.is_not(None))):
                if told := _secrets_in(value):
                    name = ", ".join(str(mask(part)) for part in key)
                    text = f"{table.name} {one_line(name)}: {column.name} has {told}"
                    yield Finding("secret", name, one_line(text, 400))


def _unmasked(column: ColumnElement[Any]) -> ColumnElement[Any] | None:
    """Return a column as it is stored; None for a column whose type masks nothing."""
    match column.type:
        case MaskedText():
            return type_coerce(column, Text)
        case MaskedJson():
            return type_coerce(column, JSON)
        case PackedText():
            return type_coerce(column, LargeBinary)
    return None


def _secrets_in(value: Any) -> str:
    """Return in words which part of a stored value is masked when it is read; empty for none."""
    if isinstance(value, bytes):
        try:
            value = zlib.decompress(value).decode("utf-8", "replace")
        except zlib.error:
            return ""  # `_blobs` reports it
    hidden = hidden_variables(value) if isinstance(value, dict) else ()
    if hidden:
        return f"the variables {', '.join(hidden)}"
    return "a password or a token" if mask(value) != value else ""


def _samples(run: int) -> Any:
    columns = (CellRow.cell_id, Samples.metric, Samples.count.label("size"), Samples.number_format, Samples.data)
    kept = or_(Samples.data.is_not(None), Samples.number_format.is_not(None))
    return select(*columns).join(CellRow, CellRow.id == Samples.cell).where(Samples.run == run, kept)


def _texts(run: int) -> Any:
    raw = [type_coerce(column, LargeBinary).label(column.key) for column in (Evidence.details, Evidence.log_tail)]
    return select(CellRow.cell_id, *raw).join(CellRow, CellRow.id == Evidence.cell).where(Evidence.run == run)


def _whole(row: Row[Any]) -> bool:
    samples = _unpacked_samples(row.number_format, row.data)
    try:
        return samples is not None and len(samples) == int(row.size)
    except (ValueError, TypeError):
        return False


def _unpacked_samples(number_format: str | None, data: bytes | None) -> list[float] | None:
    """Return the samples of a row; None where they cannot be read."""
    if data is None or number_format is None:
        return None
    try:
        samples: list[float] = unpack(number_format, data).tolist()
    except (zlib.error, ValueError, TypeError):
        return None
    return samples


def _unpacks(data: bytes | None) -> bool:
    try:
        if data is not None:
            zlib.decompress(data)
    except zlib.error:
        return False
    return True


#: Columns of a run that its bundles do not decide: the database's numbers and counts, and the bundle that it took facts from.
_OF_THE_DATABASE = frozenset({"key", "commit_date", "commit_title", "planned", "measured", "statuses", "bundle"})

#: The rows of a run by kind and key: the cell's id, then replicate and metric where a row has them.
Contents: TypeAlias = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class BundleCheck:
    """The result of comparing a database with bundles.

    `runs` were compared; `untold` are runs of the database that no bundle has, which is no fault. `thinned` counts samples and
    evidence that are gone from the database with age; `damage` has a line for each part of the bundles that could not be read.
    """

    findings: tuple[Finding, ...]
    runs: int
    measurements: int
    thinned: int
    untold: tuple[str, ...]
    damage: tuple[str, ...]


def check_bundles(source: Source, bundles: Iterable[Path]) -> BundleCheck:
    """Compare every measurement, its samples and its evidence with the content of all bundles together.

    The bundles are first stored in a temporary database, so that the rules of ingest unite several bundles of one run.
    A file that cannot be read as a bundle is a finding of its own, and the others are compared. Raises `StoreError`
    where the database cannot be read, or there is no room for the temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-watch-") as folder:
        expected_store = open_store(Path(folder) / "expected.db", write=True)
        findings: list[Finding] = []
        damage: list[str] = []
        try:
            for path in bundles:
                try:
                    report = ingest_bundle(expected_store, path)
                    damage += [f"{path}: {line}" for line in report.damage]
                    findings += [Finding("secret", report.run_id, f"{path}: {line}") for line in report.secrets]
                except BundleError as error:
                    findings.append(Finding("broken", str(path), one_line(str(error), 400)))
            with connected(source) as conn:
                return _compared(conn, expected_store, findings, damage)
        finally:
            expected_store.dispose()


def _compared(conn: Connection, expected_store: Engine, findings: list[Finding], damage: list[str]) -> BundleCheck:
    measured = thinned = 0
    with expected_store.connect() as other:
        names = other.execute(select(Run.run_id).order_by(Run.run_id)).scalars().all()
        for name in names:
            expected, stored = _contents(other, name), _contents(conn, name)
            if expected is None or stored is None:
                findings.append(Finding("missing", name, f"run {one_line(name)} is not in the database"))
                continue
            measured += len(expected["measurement"])
            thinned += sum(map(_is_thinned, [*stored["samples"].values(), *stored["evidence"].values()]))
            findings += _differences(name, expected, stored)
    stored_names = set(conn.execute(select(Run.run_id)).scalars())
    untold = tuple(sorted(stored_names - set(names)))
    return BundleCheck(tuple(findings), len(names), measured, thinned, untold, tuple(damage))


def _contents(conn: Connection, run_id: str) -> Contents | None:
    """Return all that is stored of a run, by public names; None if there is no run of that name."""
    runs = find_runs(conn, Run.run_id == run_id)
    if not runs:
        return None
    key = runs[0].key
    planned = select(Planned.cell).where(Planned.run == key)
    cells = planned.union(select(measurements.c.cell).where(measurements.c.run == key))
    queries = {"": names_query().add_columns(ConfigRow.request).where(CellRow.id.in_(cells))}
    for what, table in (
        ("measurement", measurements),
        ("evidence", Evidence.__table__),
        ("samples", Samples.__table__),
    ):
        # The cell's public name replaces the database's numbers.
        columns = (column for column in table.c if column.name not in ("run", "cell", "program", "environment"))
        query = select(CellRow.cell_id, *columns).join(CellRow, CellRow.id == table.c.cell)
        queries[what] = query.where(table.c.run == key)
    queries["measurement"] = (
        queries["measurement"]
        .add_columns(Program.program_id, Program.options, Environment.environment_id)
        .add_columns(Environment.data.label("environment"))
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
    )
    contents = {
        what: {_place(row): _unpacked(row) for row in conn.execute(queries[what]).mappings()} for what in queries
    }
    run = {name: value for name, value in asdict(runs[0]).items() if name not in _OF_THE_DATABASE}
    return {"run": {(): run}, **contents}


def _place(row: RowMapping) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("cell_id", "replicate", "metric") if name in row)


def _unpacked(row: RowMapping) -> dict[str, Any]:
    """Return a row with its samples as values: another zlib may compress the same samples to other bytes."""
    content = dict(row)
    if "number_format" in content:
        number_format, data = content.pop("number_format"), content.pop("data")
        content["values"] = None if data is None else _unpacked_samples(number_format, data) or "not readable"
    return content


def _differences(name: str, expected: Contents, stored: Contents) -> Iterator[Finding]:
    """Yield findings for each difference between the bundles' content (`expected`) and the database's (`stored`)."""
    where = f"run {one_line(name)}"
    run = stored["run"][()]
    for column, value in expected["run"][()].items():
        if run[column] != value:
            text = f"{where}: its {column} is {one_line(str(run[column]), 40)}, bundles say {one_line(str(value), 40)}"
            yield Finding("different", name, text)
    for what in (what for what in expected if what != "run"):
        for key in sorted(expected[what].keys() | stored[what].keys()):
            place = f"{where}, cell {_spelled(key)}{': ' * bool(what)}{what}"
            if key not in stored[what]:
                yield Finding("missing", name, f"{place} is not in the database")
            elif key not in expected[what]:
                yield Finding("extra", name, f"{place} is in no bundle")
            elif names := _unequal(expected[what][key], stored[what][key]):
                yield Finding("different", name, f"{place} differs in {', '.join(names)}")


def _is_thinned(row: Mapping[str, Any]) -> bool:
    no_text = "log_tail" in row and row["log_tail"] is None and row["details"] is None
    return no_text or row.get("values", "") is None


def _unequal(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that differ, without thinned values and records that one bundle lost and another has."""
    lost = {name for name in ("options", "environment") if expected.get(name, "") is None}
    gone = {"values", "details", "log_tail"} if _is_thinned(stored) else set()
    return [name for name in expected if name not in lost | gone and not _same(expected[name], stored[name])]


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other) or both_nan


def _spelled(key: tuple[Any, ...]) -> str:
    """Return a key as `CELL`, `CELL (replicate 1)` or `CELL (metric)`: the first replicate is not named."""
    cell, *rest = key
    words = [f"replicate {word}" if isinstance(word, int) else one_line(word) for word in rest if word != 0]
    return f"{cell} ({', '.join(words)})" if words else str(cell)
