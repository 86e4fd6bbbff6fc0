"""A bundle as rows, before they are stored. What a database cannot keep is made fit for it, or reported as damage."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from collector.bundle import BundleContents, BundleError, RunHeader, read_bundle
from collector.code import Code, unpack_text
from collector.metrics import METRICS
from collector.vocabulary import Cell, Measurement, short_hash
from db.arrays import pack, relative_spread
from db.errors import one_line
from db.queries.details import throttled_by
from db.queries.moments import to_epoch
from db.texts import UNFIT, clean, clean_json, compact, error_text, finite, whole

_T = TypeVar("_T")


@dataclass(slots=True)
class IncomingMeasurement:
    """One row of `measurements`, with program and environment by name, and its rows of `evidence` and `samples`."""

    row: dict[str, Any]
    evidence: dict[str, Any] | None
    samples: list[dict[str, Any]]


@dataclass(slots=True)
class Incoming:
    """One run, ready to be stored. Cells are keyed by `cell_id`, measurements by cell and replicate."""

    run: dict[str, Any]
    commit: dict[str, Any]
    testbed: dict[str, Any]
    branch_start: dict[str, Any] | None
    planned: set[str] = field(default_factory=set)
    cells: dict[str, Cell] = field(default_factory=dict)
    measurements: dict[tuple[str, int], IncomingMeasurement] = field(default_factory=dict)
    programs: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    environments: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)


def read_incoming(path: Path) -> Incoming:
    """Reads a bundle. Raises `BundleError` for a file that is no bundle, or whose first line says no usable run."""
    try:
        contents = read_bundle(path)
    except RecursionError as error:
        raise BundleError(f"{one_line(str(path), 200)} is not a bundle: it nests too deep") from error
    incoming = _begin(path, contents)
    incoming.secrets = contents.secrets
    for cell in contents.planned:
        if cell_id := _cell(incoming, cell):
            incoming.planned.add(cell_id)
    for measurement, place in zip(contents.measurements, contents.places, strict=True):
        _measurement(incoming, measurement, version_of(*place))
    incoming.programs |= storable("program", contents.programs, clean_json, incoming.damage)
    incoming.codes = {clean(code_id): Code.from_json(code) for code_id, code in contents.codes.items()}
    incoming.texts = storable("text", contents.texts, unpack_text, incoming.damage)
    incoming.environments |= storable("environment", contents.environments, clean_json, incoming.damage)
    return incoming


def version_of(attempt: int, line: int) -> int:
    """Orders what several bundles, or several states of one, say of a cell: by attempt, then by line. No clock is asked.

    Both are cut to what an integer column holds: 2,047 attempts of 1,048,575 lines.
    """
    return min(max(attempt, 0), 2**11 - 1) << 20 | min(line, 2**20 - 1)


def _begin(path: Path, contents: BundleContents) -> Incoming:
    header, damage = contents.header, list(contents.damage)
    try:
        for name in ("run_id", "branch", "commit", "started_at"):
            value = getattr(header, name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"{name} is no text")
        if not isinstance(header.testbed, Mapping):
            raise ValueError("testbed is no JSON object")
        run = {
            "run_id": clean(header.run_id),
            "night": clean(str(header.night or header.run_id)),
            "branch": clean(header.branch),
            "trigger": clean(str(header.trigger)),
            "label": clean(str(header.label)),
            "attempt": whole(contents.attempt, "attempt"),
            "started_at": to_epoch(header.started_at),
            "finished_at": _moment(contents.finished_at, "the end of the run", "the run counts as open", damage),
            "tool_version": clean(str(header.tool_version)),
            "bundle": clean(path.name),
            "lines": len(contents.measurements),
            "ci_url": clean(str(header.ci_url)),
            "usage": clean_json(contents.usage) or None,
        }
        testbed = clean_json(header.testbed)
        testbed_row = {"testbed_id": short_hash(testbed), "data": testbed}
        return Incoming(run, _commit(header, damage), testbed_row, _start(header), damage=damage)
    except UNFIT as error:
        raise BundleError(
            f"{one_line(str(path), 200)}: its first line says no usable run: {error_text(error)}"
        ) from error


def _moment(text: str | None, what: str, instead: str, damage: list[str]) -> float | None:
    """Seconds since 1970; None without a text, and for one that is no time, which is reported with what is done instead."""
    try:
        return None if text is None else to_epoch(text)
    except UNFIT:
        damage.append(f"{what} is not ISO 8601: {one_line(str(text))}; {instead}")
        return None


def _commit(header: RunHeader, damage: list[str]) -> dict[str, Any]:
    title = clean(str(header.commit_title)) if header.commit_title else None
    # PyTorch's merge bot ends the first line of a message with the number of the pull request.
    number = re.search(r"\(#(\d{1,9})\)\s*$", title or "")
    return {
        "repo": clean(str(header.repo)),
        "sha": clean(header.commit),
        "author_date": _moment(header.commit_date or None, "the commit's date", "left out", damage),
        "title": title,
        "pr_number": int(number[1]) if number else None,
    }


def _start(header: RunHeader) -> dict[str, Any] | None:
    """The commit at which the branch left the main line, of which no more is known than its name."""
    if not header.branch_start:
        return None
    blank = dict.fromkeys(("author_date", "title", "pr_number"))
    return {"repo": clean(str(header.repo)), "sha": clean(str(header.branch_start)), **blank}


def storable(kind: str, records: Mapping[str, Any], read: Callable[[Any], _T], damage: list[str]) -> dict[str, _T]:
    """What `read` makes of each record of a bundle, by its name. `damage` gets a line for each that cannot be stored."""
    by_name: dict[str, _T] = {}
    for name, data in records.items():
        try:
            by_name[clean(str(name))] = read(data)
        except UNFIT as error:
            damage.append(f"{kind} {one_line(str(name))} cannot be stored: {error_text(error)}; left out")
    return by_name


def _cell(incoming: Incoming, cell: Cell) -> str | None:
    """The cell's id, once the cell is among the incoming ones; None, with a note, if no database can keep it."""
    try:
        for name in ("suite", "model", "dtype", "device"):
            if not isinstance(getattr(cell, name), str):
                raise TypeError(f"{name} is no text")
        whole(cell.batch_size, "batch_size")
        clean(cell.config.name)
        cell_id = cell.cell_id
    except UNFIT as error:
        incoming.damage.append(f"a cell cannot be stored: {error_text(error)}; left out")
        return None
    incoming.cells.setdefault(cell_id, cell)
    return cell_id


def _measurement(incoming: Incoming, measurement: Measurement, version: int) -> None:
    if (cell_id := _cell(incoming, measurement.cell)) is None:
        return
    instead = "the run's start stands in for it"
    started_at = _moment(measurement.started_at, "a measurement's start", instead, incoming.damage)
    try:
        rows = to_rows(measurement, incoming.run["started_at"] if started_at is None else started_at, version)
    except UNFIT as error:
        incoming.damage.append(f"a measurement of cell {cell_id} cannot be stored: {error_text(error)}; left out")
        return
    for name, table in ((rows.row["program"], incoming.programs), (rows.row["environment"], incoming.environments)):
        if name is not None:
            table.setdefault(name, None)
    # The later line wins: a cell that was measured again was measured again for a reason.
    incoming.measurements[cell_id, rows.row["replicate"]] = rows


def to_rows(measurement: Measurement, started_at: float, version: int) -> IncomingMeasurement:
    """The rows of one measurement that began at `started_at`, seconds since 1970. Raises one of `UNFIT` if it cannot be."""
    details = dict(measurement.details)
    metrics = _metrics(measurement, details)
    failure, reasons = measurement.failure, throttled_by(details)
    row = {
        "replicate": whole(measurement.replicate, "replicate"),
        "status": measurement.status.value,
        "started_at": started_at,
        "wall_s": finite(measurement.wall_s, "wall_s"),
        **{name: metrics.get(name) for name in METRICS},
        "throttled": None if reasons is None else ",".join(reasons),
        "stage": failure.stage.value if failure else None,
        "exception": clean(str(failure.exception)) if failure else None,
        "message": clean(str(failure.message)) if failure else None,
        "hint": clean(str(failure.hint)) if failure and failure.hint is not None else None,
        "version": version,
        "code_id": None if measurement.code_id is None else clean(str(measurement.code_id)),
        "program": None if measurement.program_id is None else clean(str(measurement.program_id)),
        "environment": None if measurement.environment_id is None else clean(str(measurement.environment_id)),
    }
    evidence = {
        "details": compact(clean_json(details)) if details else None,
        "log_tail": clean(str(measurement.log_tail)) if measurement.log_tail else None,
    }
    samples = {clean(metric): values for metric, values in measurement.samples.items()}
    return IncomingMeasurement(
        row,
        evidence if any(evidence.values()) else None,
        [_samples(metric, values) for metric, values in sorted(samples.items())],
    )


def _metrics(measurement: Measurement, details: dict[str, Any]) -> dict[str, float]:
    """The metrics that the store knows. Those of a newer collector, and values that are no number, go to the details."""
    numbers = {name: float(value) for name, value in measurement.metrics.items() if math.isfinite(value)}
    others = {
        name: value if name in numbers else str(value)
        for name, value in measurement.metrics.items()
        if name not in METRICS or name not in numbers
    }
    if others:
        details["other_metrics"] = others
    return numbers


def _samples(metric: str, values: list[float]) -> dict[str, Any]:
    number_format, data = pack(values)
    spread = relative_spread(values) if all(map(math.isfinite, values)) else None
    return {"metric": metric, "count": len(values), "spread": spread, "number_format": number_format, "data": data}
