"""A row's evidence: every value under its own name, where it came from, and the surroundings that it tells of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from db.importing.rows import Row
from db.importing.values import Value, plain, spelled

#: Arguments that name a model's own row; all others are one program's, and kept once as the environment.
_PER_ROW = ("only", "output", "batch_size", "device_index", "partition_id", "total_partitions")
#: Parts of a record that are the surroundings of a run.
SURROUNDINGS = ("runners", "dependencies")


def evidence_of(row: Row) -> dict[str, Any]:
    """All that a row says, but for what `environment_of` keeps."""
    found: dict[str, Any] = {"from": row.place, "batch_size": row.batch_size, "values": flat(row.values)}
    found["arguments"] = {name: row.arguments[name] for name in _PER_ROW if name in row.arguments}
    found["table"] = dict(row.surplus)
    found["record"] = {key: value for key, value in row.extra.items() if key not in SURROUNDINGS}
    found["told"] = {name: value for name, value in asdict(row.told).items() if value is not None}
    if row.kind.benchmark:
        found["benchmark"] = row.kind.benchmark
    found["notes"] = list(row.notes)
    return {key: value for key, value in found.items() if value not in (None, {}, [])}


def shared_arguments(row: Row) -> dict[str, Any]:
    """The arguments that all rows of one command have in common."""
    return {name: value for name, value in row.arguments.items() if name not in _PER_ROW}


def flat(values: Mapping[str, list[Value]]) -> dict[str, Any]:
    """A column's value, or all of them where it has several."""
    return {name: found[0] if len(found) == 1 else list(found) for name, found in values.items()}


def phases_of(row: Row) -> dict[str, Any]:
    """Seconds by phase of the compiler; a text that is no number stays one."""
    return {name: spelled(value) if isinstance(value, str) else value for name, value in flat(row.values).items()}


def environment_of(rows: Iterable[tuple[str, Row]]) -> dict[str, Any]:
    """Surroundings of the rows of a cell, flat: arguments by the row's target, libraries, runner. Empty if none is told."""
    found: dict[str, Any] = {}
    for target, row in rows:
        for name, value in shared_arguments(row).items():
            _flatten(found, f"{target}.{name}", value)
        for name in SURROUNDINGS:
            if row.extra.get(name):
                _flatten(found, name, row.extra[name])
    return {str(key): plain(value) for key, value in found.items()}


def _flatten(found: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, Mapping) and value and name.count(".") < 6:
        for key, item in value.items():
            _flatten(found, f"{name}.{key}", item)
    else:
        found[name] = value
