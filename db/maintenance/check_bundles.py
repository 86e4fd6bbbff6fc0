"""Checks a database against bundles: it must hold what they hold."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from db.schema import (
    CellRow,
    Commit,
    ConfigRow,
    Environment,
    Evidence,
    Planned,
    Program,
    Run,
    Samples,
    Testbed,
    measurements,
)

#: Columns of a run that its bundles do not decide: the database's numbers and counts, and which bundle it knows best.
_OF_THE_DATABASE = frozenset({"id", "commit", "testbed", "planned", "measured", "statuses", "bundle", "lines"})
_NUMBERS = frozenset({"run", "cell", "program", "environment"})

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

    The bundles are first stored in a temporary database, so that the rules of ingest unite several bundles of one run. A
    file that cannot be read as a bundle is a finding of its own, and the others are compared.

    Raises:
        StoreError: the database cannot be read, or there is no room for the other one.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-watch-") as folder:
        expected_store = open_store(Path(folder) / "told.db", write=True)
        findings: list[Finding] = []
        damage: list[str] = []
        try:
            for path in bundles:
                try:
                    damage += [f"{path}: {line}" for line in ingest_bundle(expected_store, path).damage]
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
            thinned += _count_thinned(stored)
            findings += _differences(name, expected, stored)
    stored_names = set(conn.execute(select(Run.run_id)).scalars())
    untold = tuple(sorted(stored_names - set(names)))
    return BundleCheck(tuple(findings), len(names), measured, thinned, untold, tuple(damage))


def _contents(conn: Connection, run_id: str) -> Contents | None:
    """All that is stored of a run, by public names; None if there is no run of that name."""
    query = select(Run, Commit.repo, Commit.sha, Testbed.testbed_id, Testbed.data.label("testbed_data"))
    query = query.join(Commit, Commit.id == Run.commit).join(Testbed, Testbed.id == Run.testbed)
    run = conn.execute(query.where(Run.run_id == run_id)).mappings().first()
    if run is None:
        return None
    planned = select(Planned.cell).where(Planned.run == run["id"])
    cells = planned.union(select(measurements.c.cell).where(measurements.c.run == run["id"]))
    expected = conn.execute(names_query().add_columns(ConfigRow.request).where(CellRow.id.in_(cells)))
    known = select(Program.options, Environment.data.label("environment"), *_named(measurements))
    measured = (
        known.join(CellRow, CellRow.id == measurements.c.cell)
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
        .add_columns(Program.program_id, Environment.environment_id)
    )
    behind, sampled = (
        select(*_named(table)).join(CellRow, CellRow.id == table.c.cell)
        for table in (Evidence.__table__, Samples.__table__)
    )
    of_run = {
        "measurement": measured.where(measurements.c.run == run["id"]),
        "evidence": behind.where(Evidence.run == run["id"]),
        "samples": sampled.where(Samples.run == run["id"]),
    }
    return {
        "run": {(): {name: value for name, value in run.items() if name not in _OF_THE_DATABASE}},
        "": {(row["cell_id"],): dict(row) for row in expected.mappings()},
        **{
            what: {_place(row): _unpacked(row) for row in conn.execute(query).mappings()}
            for what, query in of_run.items()
        },
    }


def _named(table: Any) -> list[Any]:
    """The columns of a table of measurements, with the cell's public name for the database's numbers."""
    return [CellRow.cell_id, *(column for column in table.c if column.name not in _NUMBERS)]


def _place(row: RowMapping) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("cell_id", "replicate", "metric") if name in row)


def _unpacked(row: RowMapping) -> dict[str, Any]:
    """A row with its samples as values: another zlib may make other bytes of the same samples."""
    found = dict(row)
    if "number_format" in found:
        number_format, data = found.pop("number_format"), found.pop("data")
        found["values"] = None if data is None else unpack(number_format, data).tolist()
    return found


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


def _count_thinned(stored: Contents) -> int:
    rows = [*stored["samples"].values(), *stored["evidence"].values()]
    return sum(row.get("values", "") is None or _is_thinned(row) for row in rows)


def _is_thinned(row: Mapping[str, Any]) -> bool:
    return "log_tail" in row and row["log_tail"] is None and row["details"] is None


def _unequal(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The names of the values that differ. What was thinned out does not, nor what one bundle lost and another has."""
    if _is_thinned(stored):
        return []
    lost = {name for name in ("options", "environment") if expected.get(name, "") is None}
    gone = {"values"} if stored.get("values", "") is None else set()
    return [name for name in expected if name not in lost | gone and not _same(expected[name], stored[name])]


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other) or both_nan


def _spelled(key: tuple[Any, ...]) -> str:
    """`CELL`, `CELL (replicate 1)`, `CELL (metric)`: the first replicate is not named."""
    cell, *rest = key
    words = [f"replicate {word}" if isinstance(word, int) else one_line(word) for word in rest if word != 0]
    return f"{cell} ({', '.join(words)})" if words else str(cell)
