"""Checks a database against bundles: it must hold what they hold."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, Engine, RowMapping, select

from collector.bundle import BundleError
from db.arrays import unpack
from db.connecting import Source, connected
from db.engine import open_store
from db.errors import one_line
from db.ingest import ingest_bundle
from db.maintenance.check import Finding
from db.queries.cell_names import names_query
from db.runs import find_runs
from db.schema import CellRow, ConfigRow, Environment, Evidence, Planned, Program, Run, Samples, measurements

#: Columns of a run that its bundles do not decide: the database's numbers and counts, and which bundle it knows best.
_OF_THE_DATABASE = frozenset({"key", "commit_date", "commit_title", "planned", "measured", "statuses", "bundle"})

#: The rows of a run by kind and key: the cell's id, then replicate and metric where a row has them.
Contents: TypeAlias = dict[str, dict[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class BundleCheck:
    """`runs` were compared; `untold` are runs of the database that no bundle has, which is no fault.

    `thinned` counts samples and evidence that are gone from the database with age; `damage` is what of the bundles could
    not be read.
    """

    findings: tuple[Finding, ...]
    runs: int
    measurements: int
    thinned: int
    untold: tuple[str, ...]
    damage: tuple[str, ...]


def check_bundles(source: Source, bundles: Iterable[Path]) -> BundleCheck:
    """Compares every measurement, its samples and its evidence with what the bundles make together.

    The bundles are first stored in a temporary database, so that the rules of ingest unite several bundles of one run.
    A file that cannot be read as a bundle is a finding of its own, and the others are compared. Raises `StoreError`
    where the database cannot be read, or there is no room for the other one.
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
    """All that is stored of a run, by public names; None if there is no run of that name."""
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
        # The cell's public name for the database's numbers.
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
    """A row with its samples as values: another zlib may make other bytes of the same samples."""
    content = dict(row)
    if "number_format" in content:
        number_format, data = content.pop("number_format"), content.pop("data")
        content["values"] = None if data is None else unpack(number_format, data).tolist()
    return content


def _differences(name: str, expected: Contents, stored: Contents) -> Iterator[Finding]:
    """What bundles say (`expected`) and the database does not."""
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
    """The names of the values that differ. What was thinned out does not, nor what one bundle lost and another has."""
    lost = {name for name in ("options", "environment") if expected.get(name, "") is None}
    gone = {"values", "details", "log_tail"} if _is_thinned(stored) else set()
    return [name for name in expected if name not in lost | gone and not _same(expected[name], stored[name])]


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other) or both_nan


def _spelled(key: tuple[Any, ...]) -> str:
    """`CELL`, `CELL (replicate 1)`, `CELL (metric)`: the first replicate is not named."""
    cell, *rest = key
    words = [f"replicate {word}" if isinstance(word, int) else one_line(word) for word in rest if word != 0]
    return f"{cell} ({', '.join(words)})" if words else str(cell)
