"""A database against bundles: whatever they tell must be in it, as they tell it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, select

from collector.bundle import BundleError
from db.connecting import Source, connected
from db.engine import open_store
from db.errors import one_line
from db.ingest import ingest_bundle
from db.maintenance.check import Finding
from db.queries.contents import RunContents, run_contents
from db.schema import Run

#: Of a run, what only says which of its bundles told most.
_OF_THE_FILE = frozenset({"bundle", "lines"})


@dataclass(frozen=True, slots=True)
class BundleCheck:
    """`runs` were compared; `untold` are runs of the database that the bundles do not tell of, which is no fault.

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

    For that they are stored in a database of their own, for as long as it takes: several bundles of one run say what
    they say together, in the order of ingest's own rules.

    A file that cannot be read as a bundle is a finding of its own, and the others are compared.

    Raises:
        StoreError: the database cannot be read, or there is no room for the other one.
    """
    with tempfile.TemporaryDirectory(prefix="inductor-watch-") as folder:
        told = open_store(Path(folder) / "told.db", write=True)
        findings: list[Finding] = []
        damage: list[str] = []
        try:
            for path in bundles:
                try:
                    damage += [f"{path}: {line}" for line in ingest_bundle(told, path).damage]
                except BundleError as error:
                    findings.append(Finding("broken", str(path), one_line(str(error), 400)))
            with connected(source) as conn:
                return _compared(conn, told, findings, damage)
        finally:
            told.dispose()


def _compared(conn: Connection, told: Engine, findings: list[Finding], damage: list[str]) -> BundleCheck:
    measured = thinned = 0
    with told.connect() as other:
        names = other.execute(select(Run.run_id).order_by(Run.run_id)).scalars().all()
        for name in names:
            expected, stored = run_contents(other, name), run_contents(conn, name)
            if expected is None or stored is None:
                findings.append(Finding("missing", name, f"run {one_line(name)} is not in the database"))
                continue
            measured += len(expected.measured)
            thinned += _count_thinned(stored)
            findings += _differences(name, expected, stored)
    stored_names = set(conn.execute(select(Run.run_id)).scalars())
    untold = tuple(sorted(stored_names - set(names)))
    return BundleCheck(tuple(findings), len(names), measured, thinned, untold, tuple(damage))


def _count_thinned(stored: RunContents) -> int:
    gone = sum(row["values"] is None for row in stored.samples.values())
    return gone + sum(_is_thinned(row) for row in stored.evidence.values())


def _is_thinned(row: Mapping[str, Any]) -> bool:
    return all(value is None for value in row.values())


def _differences(name: str, expected: RunContents, stored: RunContents) -> Iterator[Finding]:
    where = f"run {one_line(name)}"
    head = {key: value for key, value in expected.head.items() if key not in _OF_THE_FILE}
    for key, value in head.items():
        if stored.head[key] != value:
            yield Finding(
                "different", name, f"{where}: its {key} is {_said(stored.head[key])}, bundles say {_said(value)}"
            )
    yield from _parts(name, f"{where}, cell", "", expected.expected, stored.expected)
    yield from _parts(name, f"{where}, cell", "measurement", expected.measured, stored.measured)
    yield from _parts(name, f"{where}, cell", "evidence", expected.evidence, stored.evidence)
    yield from _parts(name, f"{where}, cell", "samples", expected.samples, stored.samples)


def _parts(
    name: str, where: str, what: str, expected: Mapping[Any, dict[str, Any]], stored: Mapping[Any, dict[str, Any]]
) -> Iterator[Finding]:
    for key in sorted(expected.keys() | stored.keys()):
        place = f"{where} {_spelled(key)}{': ' * bool(what)}{what}"
        if key not in stored:
            yield Finding("missing", name, f"{place} is not in the database")
        elif key not in expected:
            yield Finding("extra", name, f"{place} is in no bundle")
        elif names := _unequal(expected[key], stored[key]):
            yield Finding("different", name, f"{place} differs in {', '.join(names)}")


def _unequal(expected: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """The names of the values that differ. What was thinned out does not, nor what one bundle lost and another has."""
    if set(expected) == {"details", "log_tail"} and _is_thinned(stored):
        return []
    lost = {name for name in ("options", "data") if name in expected and expected[name] is None}
    gone = {"values"} if stored.get("values", "") is None else set()
    return [name for name in expected if name not in lost | gone and not _same(expected[name], stored[name])]


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other) or both_nan


def _spelled(key: Any) -> str:
    """`CELL`, `CELL (replicate 1)`, `CELL (metric)`: the first replicate needs no word."""
    if isinstance(key, str):
        return key
    cell, replicate, *metric = key
    words = ([f"replicate {replicate}"] if replicate else []) + [one_line(word) for word in metric]
    return f"{cell} ({', '.join(words)})" if words else str(cell)


def _said(value: Any) -> str:
    return one_line(str(value), 40)
