"""A bundle as rows, before they are stored. Values that a database cannot keep are made fit for it, or reported as damage."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, and_, func, insert, or_, select, tuple_, update

from collector.bundle import BundleContents, KnownCode, RunHeader, read_bundle
from collector.code import Code, unpack_text
from collector.metrics import METRICS, Section
from collector.usage_errors import BundleError
from collector.vocabulary import Cell, Measurement, canonical_json, short_hash
from db.connecting import by_key, chunks
from db.queries.details import throttled_by
from db.schema import Base, Branch, CellRow, CodeRow, CodeText, Commit, ConfigRow, Environment, Model, Program
from db.store_errors import one_line
from db.stored_values import (
    UNFIT,
    clean,
    clean_compact,
    clean_json,
    error_text,
    finite,
    pack,
    relative_spread,
    to_epoch,
    whole,
)

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
    """Read a bundle. Raises `BundleError` for a file that is no bundle, or whose first line describes no usable run."""
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
    """Return the version of a measurement, which grows with its attempt, then with its line in the bundle.

    Versions order the measurements of a cell in several bundles, or in several states of one, without asking a clock. Both
    numbers are cut to what an integer column holds: 2,047 attempts of 1,048,575 lines.
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
    """Return the seconds since 1970 of an ISO 8601 text, or None for None.

    Any other text gives None and a line in `damage`, which names the value (`what`) and what is done instead (`instead`).
    """
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
    """Return the commit at which the branch left the main line as a row of repository and sha only; None if none is named."""
    if not header.branch_start:
        return None
    blank = dict.fromkeys(("author_date", "title", "pr_number"))
    return {"repo": clean(str(header.repo)), "sha": clean(str(header.branch_start)), **blank}


def storable(kind: str, records: Mapping[str, Any], read: Callable[[Any], _T], damage: list[str]) -> dict[str, _T]:
    """Return each record of a bundle, converted by `read`, by its name. Add a line to `damage` for each that cannot be stored."""
    by_name: dict[str, _T] = {}
    for name, data in records.items():
        try:
            by_name[clean(str(name))] = read(data)
        except UNFIT as error:
            damage.append(f"{kind} {one_line(str(name))} cannot be stored: {error_text(error)}; left out")
    return by_name


def _cell(incoming: Incoming, cell: Cell) -> str | None:
    """Add a cell to the incoming ones and return its id. If no database can keep the cell, report damage and return None."""
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
    """Return the rows of one measurement. Raises one of `UNFIT` if it cannot be stored.

    `started_at` is the start of the measurement, in seconds since 1970.
    """
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
        "details": clean_compact(details) if details else None,
        "log_tail": clean(str(measurement.log_tail)) if measurement.log_tail else None,
    }
    samples = {clean(metric): values for metric, values in measurement.samples.items()}
    return IncomingMeasurement(
        row,
        evidence if any(evidence.values()) else None,
        [_samples(metric, values) for metric, values in sorted(samples.items())],
    )


#: The smallest and the largest value of a metric, in its unit, besides 0: 1e15 ms are 30,000 years, 1e15 bytes a petabyte.
_LEAST, _MOST = 1e-15, 1e15


def _metrics(measurement: Measurement, details: dict[str, Any]) -> dict[str, float]:
    """Return the finite metrics. Add metrics that the store does not know, and values that are not finite, to `details`.

    Raises `ValueError` for a finite value that nobody measures.
    """
    numbers = {name: float(value) for name, value in measurement.metrics.items() if math.isfinite(value)}
    for name, value in numbers.items():
        # Errors and similarities of wrong outputs may be of any size.
        is_bounded = name in METRICS and METRICS[name].section is not Section.CORRECTNESS
        if is_bounded and value and not _LEAST <= value <= _MOST:
            raise ValueError(f"{name} {value:g} is neither 0 nor from {_LEAST:g} to {_MOST:g}")
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


Key = tuple[Any, ...]


def ensure(
    conn: Connection, table: type[Base], key: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> dict[Key, int]:
    """Return the `id` of every row by the values of its key columns; insert the rows whose key is new."""
    by_key = {tuple(row[name] for name in key): row for row in rows}
    known = _find(conn, table, key, by_key)
    new = [row for values, row in by_key.items() if values not in known]
    if new:
        conn.execute(insert(table), [dict(row) for row in new])
        known |= _find(conn, table, key, [values for values in by_key if values not in known])
    return known


def commit_key(conn: Connection, commit: Mapping[str, Any]) -> int:
    """Return the number of a commit; insert the commit if it is new.

    Facts of a bundle fill gaps, and never replace facts of a repository. If two bundles disagree, the smaller value counts,
    whichever came first.
    """
    number = ensure(conn, Commit, ("repo", "sha"), [commit])[commit["repo"], commit["sha"]]
    for name in ("author_date", "title", "pr_number"):
        if commit[name] is not None:
            column = getattr(Commit, name)
            may_change = or_(column.is_(None), and_(Commit.position.is_(None), column > commit[name]))
            conn.execute(update(Commit).where(Commit.id == number, may_change).values({name: commit[name]}))
    return number


def branch_key(conn: Connection, repo: str, name: str, start: Mapping[str, Any] | None = None) -> int:
    """Return the number of a branch; insert the branch if it is new.

    A start fills a gap. Of two different starts the later one in the line counts.
    """
    number = ensure(conn, Branch, ("repo", "name"), [{"repo": repo, "name": name}])[repo, name]
    if start is not None:
        given = commit_key(conn, start)
        known = conn.execute(select(Branch.start).where(Branch.id == number)).scalar()
        order = (func.coalesce(Commit.position, -1).desc(), Commit.sha.desc())
        later = select(Commit.id).where(Commit.id.in_((given, known))).order_by(*order).limit(1).scalar_subquery()
        conn.execute(update(Branch).where(Branch.id == number).values(start=later))
    return number


def cell_keys(conn: Connection, incoming: Incoming) -> dict[str, int]:
    """Return the number of every incoming cell by `cell_id`; insert new cells with their models and configs."""
    known = {name: number for (name,), number in _find(conn, CellRow, ("cell_id",), zip(incoming.cells)).items()}
    # Neighbouring numbers for the cells of a model keep its rows of a night side by side: a history reads few pages.
    unknown = [(str(cell), cell_id) for cell_id, cell in incoming.cells.items() if cell_id not in known]
    new = {cell_id: incoming.cells[cell_id] for _, cell_id in sorted(unknown)}
    if not new:
        return known
    models: dict[Key, dict[str, Any]] = {}
    configs: dict[str, dict[str, Any]] = {}
    for cell in new.values():
        models[cell.suite, cell.model] = {"suite": clean(cell.suite), "name": clean(cell.model)}
        if (config := cell.config).config_id not in configs:
            request = clean_json(config.to_json())
            configs[config.config_id] = {"config_id": config.config_id, "name": clean(config.name), "request": request}
    model_keys = ensure(conn, Model, ("suite", "name"), models.values())
    config_keys = ensure(conn, ConfigRow, ("config_id",), configs.values())
    rows = [
        {
            "cell_id": cell_id,
            "model": model_keys[clean(cell.suite), clean(cell.model)],
            "phase": cell.phase.value,
            "dtype": clean(cell.dtype),
            "device": clean(cell.device),
            "batch_size": cell.batch_size,
            "config": config_keys[(cell.config.config_id,)],
        }
        for cell_id, cell in new.items()
    ]
    return known | {name: number for (name,), number in ensure(conn, CellRow, ("cell_id",), rows).items()}


def record_keys(
    conn: Connection, kind: Literal["program", "environment"], records: Mapping[str, Any]
) -> dict[str | None, int | None]:
    """Return the number of every program or environment by its public name; None maps to None.

    A record that an earlier, damaged bundle had lost is filled in.
    """
    table: type[Program | Environment] = Program if kind == "program" else Environment
    key, value = f"{kind}_id", "options" if kind == "program" else "data"
    known = _find(conn, table, (key,), zip(records))
    numbers = ensure(conn, table, (key,), [{key: name, value: data} for name, data in records.items()])
    for name, data in records.items():
        if (name,) in known and data is not None:
            column = getattr(table, value)
            conn.execute(update(table).where(table.id == numbers[(name,)], column.is_(None)).values({value: data}))
    return {None: None} | {name: number for (name,), number in numbers.items()}


def _find(conn: Connection, table: type[Base], key: Sequence[str], values: Iterable[Key]) -> dict[Key, int]:
    columns = [getattr(table, name) for name in key]
    identity = table.__table__.c["id"]
    numbers: dict[Key, int] = {}
    for chunk in chunks(values):
        wanted = columns[0].in_([value for (value,) in chunk]) if len(key) == 1 else tuple_(*columns).in_(chunk)
        numbers |= {tuple(row[1:]): row[0] for row in conn.execute(select(identity, *columns).where(wanted))}
    return numbers


def store_code(conn: Connection, incoming: Incoming, folder: Path) -> None:
    """Store the code that this database does not have, and its texts.

    Code that the bundle lacks is read from the other bundles in `folder`, which perhaps are not in this database: a run may have
    been removed from it, or never stored.
    """
    used = {item.row["code_id"] for item in incoming.measurements.values()} - {None}
    lacking = _lacking(conn, CodeRow.code_id, used)
    if not lacking:
        return
    beside = _Beside(folder, incoming)
    codes = {code_id: code for code_id in lacking if (code := beside.code(code_id))}
    _insert(
        conn,
        CodeRow,
        [{"code_id": key, "graphs": canonical_json(code.to_json()["graphs"])} for key, code in codes.items()],
    )
    text_ids = set[str]().union(*(code.text_ids for code in codes.values()))
    texts = {text_id: beside.text(text_id) for text_id in _lacking(conn, CodeText.text_id, text_ids)}
    _insert(conn, CodeText, [{"text_id": key, "text": text} for key, text in texts.items() if text is not None])


class _Beside:
    """The code of a bundle and of the bundles beside it, each of which is read once something in it is needed."""

    def __init__(self, folder: Path, incoming: Incoming) -> None:
        self._known, self._codes, self._texts = KnownCode(folder), dict(incoming.codes), dict(incoming.texts)
        self._read: set[Path] = set()

    def code(self, code_id: str) -> Code | None:
        if code_id not in self._codes:
            self._read_bundle_of(code_id)
        return self._codes.get(code_id)

    def text(self, text_id: str) -> str | None:
        if text_id not in self._texts:
            self._read_bundle_of(text_id)
        return self._texts.get(text_id)

    def _read_bundle_of(self, name: str) -> None:
        path = self._known.bundle_of(name)
        if path is None or path in self._read:
            return
        self._read.add(path)
        with suppress(BundleError, OSError, RecursionError):  # the comparison then lacks this text
            contents: BundleContents = read_bundle(path)
            self._codes |= {code_id: Code.from_json(code) for code_id, code in contents.codes.items()}
            self._texts |= storable("text", contents.texts, unpack_text, [])


def _lacking(conn: Connection, column: Any, names: Iterable[str]) -> list[str]:
    """Return the names that the column does not have but could store, sorted."""
    usable = {name for name in names if clean(name) == name}
    return sorted(usable - by_key(conn, column, column, usable).keys())


def _insert(conn: Connection, table: type[Base], rows: list[dict[str, Any]]) -> None:
    if rows:
        conn.execute(insert(table), rows)
