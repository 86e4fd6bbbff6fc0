"""Rows of one run as measurements: performance, accuracy and side files of a cell become one measurement.

A table is first joined with the JSON beside it, which has the same rows, so that nothing is doubled and nothing is lost. The
JSON has every digit, every name and the arguments; the table has the batch size and the rows of models that failed. A table's
names can be wrong: its writer replaces a header by a longer one and leaves earlier rows as they were.

The accuracy decides the status, the performance gives numbers and the batch size. PyTorch checks accuracy on smaller
batches than it times, so the two are joined on everything but the batch size; the accuracy's own is kept in the details.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from collector.vocabulary import Cell, Failure, Measurement, Stage, Status, short_hash
from db.importing import result_files
from db.importing.pytorch_names import METRIC_OF, Identity, meaning_of, metrics_of
from db.importing.result_files import parse_name
from db.importing.result_rows import Row, Target, Value, plain, spelled
from db.store_errors import one_line
from db.stored_values import from_epoch

#: Arguments of a model's own row; all others belong to the program and are kept once, in the environment.
_PER_ROW = ("only", "output", "batch_size", "device_index", "partition_id", "total_partitions")
#: Parts of a record that describe the machine and the libraries of a run.
_SURROUNDINGS = ("runners", "dependencies")
#: The leading row of a measurement is of the first of these kinds that the cell has.
_LEADING = (Target.PERFORMANCE, Target.ACCURACY, Target.PHASES)
_ACCURACY_PHASES = "accuracy_compile_phases"

#: The rows of one cell, of any batch size.
_ByTarget: TypeAlias = dict[Target, list[Row]]


@dataclass(slots=True)
class _RowSet:
    """The rows of one measurement: a row of each kind by name, and lists of rows that are only evidence."""

    batch_size: int
    rows: dict[str, Row] = field(default_factory=dict)
    evidence: dict[str, list[Row]] = field(default_factory=dict)


def merge(
    rows: Sequence[tuple[Identity, Row]], started_at: str, is_dated: bool, problems: list[str]
) -> tuple[list[Measurement], dict[str, dict[str, Any]]]:
    """Return one measurement per cell and replicate, in the order in which the cells were met, and their environments by id.

    With `is_dated` the caller gave the date, and all measurements start at `started_at`; else each starts when its records say.
    A cell with several rows of a kind was measured several times: each is a replicate, and the last one counts.
    """
    cells: dict[Identity, _ByTarget] = defaultdict(lambda: defaultdict(list))
    siblings: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for identity, row in rows:
        cells[identity][row.target].append(row)
        siblings[_same_model(row.target, identity)] |= _batches([row])
    measurements: list[Measurement] = []
    environments: dict[str, dict[str, Any]] = {}
    replicates: Counter[str] = Counter()
    for identity, by_target in cells.items():
        leading = next((target for target in _LEADING if by_target[target]), Target.OTHER)
        for row_set in _row_sets(by_target, leading, siblings[_same_model(leading, identity)]):
            measurement = _measurement(identity, row_set, started_at, is_dated, problems)
            cell_id = measurement.cell.cell_id
            measurement.replicate = replicates[cell_id]
            replicates[cell_id] += 1
            if environment := _environment(row_set.rows):
                measurement.environment_id = short_hash(environment)
                environments[measurement.environment_id] = environment
            measurements.append(measurement)
    return measurements, environments


def _same_model(target: Target, identity: Identity) -> tuple[str, ...]:
    """Return the key by which rows share a batch size: PyTorch has one per suite, model and phase, for all configs."""
    return (target, identity.suite, identity.model, identity.phase, identity.dtype, identity.device)


def _batches(rows: Iterable[Row]) -> set[int]:
    return {row.batch_size for row in rows if row.batch_size}


def _row_sets(of: _ByTarget, leading: Target, siblings: set[int]) -> Iterator[_RowSet]:
    """Yield the rows of each measurement of a cell.

    `siblings` are the batch sizes that the model's leading rows have under any config.
    """
    for row in of[Target.GRAPHNET]:
        yield _RowSet(row.batch_size or 0, {Target.GRAPHNET: row})
    if not any(rows for target, rows in of.items() if target is not Target.GRAPHNET):
        return
    groups: dict[int, list[_RowSet]] = defaultdict(list)
    for row in of[leading] if leading in _LEADING else ():
        batch = row.batch_size or _batch_size(of, leading, siblings)
        groups[batch].append(_RowSet(batch, {_kind(row): row}))
    sets = list(groups.values()) or [[_RowSet(0)]]
    if leading is not Target.PHASES:
        beside = [row for target in (Target.ACCURACY, Target.PHASES) if target is not leading for row in of[target]]
        for kind in (Target.ACCURACY, Target.PHASES, _ACCURACY_PHASES):
            _attach(sets, kind, [row for row in beside if _kind(row) == kind])
    sets[-1][-1].evidence |= {"graph_breaks": of[Target.BREAKS], "other": of[Target.OTHER]}
    for group in sets:
        yield from group


def _kind(row: Row) -> str:
    is_of_accuracy = row.flag("accuracy") is True or parse_name(row.source.stem).beside is Target.ACCURACY
    return _ACCURACY_PHASES if row.target is Target.PHASES and is_of_accuracy else row.target.value


def _batch_size(of: _ByTarget, leading: Target, siblings: set[int]) -> int:
    """Return the batch size of a row without one; PyTorch uses 0 for "unknown"."""
    candidates = (_batches(of[leading]), siblings, _batches(of[Target.PHASES]))
    certain = next((batches for batches in candidates if len(batches) == 1), None)
    return max(certain or _batches(of[Target.ACCURACY]), default=0)


def _attach(groups: Sequence[Sequence[_RowSet]], kind: str, rows: Sequence[Row]) -> None:
    """Join rows of another kind, the last with the last; rows without a partner stay as evidence."""
    used: set[int] = set()
    for group in groups:
        fitting = [row for row in rows if row.batch_size == group[-1].batch_size] or rows
        for row_set, row in zip(reversed(group), reversed(fitting), strict=False):
            row_set.rows[kind] = row
            used.add(id(row))
    groups[0][0].evidence.setdefault("superseded", []).extend(row for row in rows if id(row) not in used)


def _measurement(
    identity: Identity, row_set: _RowSet, started_at: str, is_dated: bool, problems: list[str]
) -> Measurement:
    names = (identity.suite, identity.model, identity.phase, identity.dtype, identity.device)
    cell = Cell(*names, row_set.batch_size, identity.config)
    begun = [row.uploader.timestamp for row in row_set.rows.values() if row.uploader.timestamp is not None]
    start = from_epoch(min(begun)).isoformat() if begun and not is_dated else started_at
    measurement = Measurement(cell, Status.SKIPPED, start, wall_s=0.0, details=_details(row_set))
    if log := row_set.rows.get(Target.GRAPHNET):
        result_files.judge(measurement, log)
        return measurement
    performance, accuracy = (row_set.rows.get(kind) for kind in (Target.PERFORMANCE, Target.ACCURACY))
    measurement.metrics, measurement.samples = metrics_of(performance, accuracy, cell.device)
    # Several values of a column are samples, even if it is no metric here.
    for name in performance.values if performance else ():
        numbers = performance.numbers(name) if performance else []
        if len(numbers) > 1 and METRIC_OF.get(name) not in measurement.samples:
            measurement.samples.setdefault(name, numbers)
    _judge(measurement, performance, accuracy, problems)
    return measurement


def _details(row_set: _RowSet) -> dict[str, Any]:
    imported: dict[str, Any] = {}
    details: dict[str, Any] = {"imported": imported}
    for kind, row in row_set.rows.items():
        imported[str(kind)] = evidence = _evidence(row)
        if row.target is Target.PHASES:
            # Seconds by phase of the compiler; a text that is no number stays a text.
            values = evidence.pop("values", {})
            details[f"{kind}_s"] = {
                name: spelled(value) if isinstance(value, str) else value for name, value in values.items()
            }
            if row.padded and row.benchmark is None:
                evidence["notes"] = [*row.notes, "shorter than the header: its names may be another row's"]
    for name in ("superseded", "graph_breaks", "other"):
        if rows := row_set.evidence.get(name):
            imported[name] = [_evidence(row) for row in rows]
    return details


def _evidence(row: Row) -> dict[str, Any]:
    """Return all content of a row, without what `_environment` keeps."""
    content: dict[str, Any] = {
        "from": row.place,
        "batch_size": row.batch_size,
        "values": _flat(row.values),
        "arguments": {name: row.arguments[name] for name in _PER_ROW if name in row.arguments},
        "table": dict(row.surplus),
        "record": {key: value for key, value in row.extra.items() if key not in _SURROUNDINGS},
        "told": {name: value for name, value in asdict(row.uploader).items() if value is not None},
        "benchmark": row.benchmark or None,
        "notes": list(row.notes),
    }
    return {key: value for key, value in content.items() if value not in (None, {}, [])}


def _flat(values: Mapping[str, list[Value]]) -> dict[str, Any]:
    """Return each column's value, or the list of its values if there are several."""
    return {name: listed[0] if len(listed) == 1 else list(listed) for name, listed in values.items()}


def _shared_arguments(row: Row) -> dict[str, Any]:
    """Return the arguments that all rows of one command have in common."""
    return {name: value for name, value in row.arguments.items() if name not in _PER_ROW}


def _environment(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return the environment of a cell's rows as a flat mapping: arguments by kind of row, libraries, runner. May be empty."""
    flat: dict[str, Any] = {}

    def flatten(name: str, value: Any) -> None:
        if isinstance(value, Mapping) and value and name.count(".") < 6:
            for key, item in value.items():
                flatten(f"{name}.{key}", item)
        else:
            flat[name] = plain(value)

    for kind, row in rows.items():
        for name, value in _shared_arguments(row).items():
            flatten(f"{kind}.{name}", value)
        for name in _SURROUNDINGS:
            if row.extra.get(name):
                flatten(name, row.extra[name])
    return flat


def _judge(measurement: Measurement, performance: Row | None, accuracy: Row | None, problems: list[str]) -> None:
    """Set status and failure: by the accuracy if there is one, else by whether the model ran."""
    # A row without a speedup does not say whether the model ran.
    speedup = performance.first("speedup") if performance else None
    has_failed = speedup is not None and "speedup" not in measurement.metrics
    # Another harness times nothing that is a metric here.
    is_timed = not measurement.metrics.keys().isdisjoint(("speedup", "compiled_ms")) or (
        performance is not None and performance.benchmark not in (None, "TorchInductor")
    )
    word = accuracy.first("accuracy") if accuracy else None
    if accuracy and isinstance(word, str) and word.strip():
        _judge_word(measurement, word.strip(), accuracy.place, is_timed or has_failed, problems)
    elif is_timed or has_failed:
        measurement.status = Status.PASS
    if measurement.status is Status.PASS and has_failed:
        measurement.status = Status.FAIL_TO_RUN
    if measurement.status is Status.FAIL_TO_RUN and measurement.failure is None and performance:
        message = f"the performance run failed: speedup {one_line(str(speedup))} in {performance.place}"
        measurement.failure = Failure(Stage.TIMING, "performance run failed", message)


def _judge_word(measurement: Measurement, word: str, place: str, was_run: bool, problems: list[str]) -> None:
    meaning = meaning_of(word)
    measurement.status = meaning.status
    if word == "pass_due_to_skip" and not was_run:
        measurement.status = Status.SKIPPED  # nothing was checked, and nothing ran
    if not meaning.is_known:
        problems.append(
            f"{place}: unknown word {one_line(word)!r} for a result: taken for {meaning.status}, kept as it is"
        )
    if measurement.status not in (Status.PASS, Status.SKIPPED):
        measurement.failure = Failure(meaning.stage, word, f"the accuracy run says {one_line(word)} in {place}")


def join_pairs(rows: Sequence[Row]) -> list[Row]:
    """Return the rows in their order, with each table's row joined to the JSON's row of the same model in the same file.

    Where a table has more rows of a model, the last ones are joined: the JSON lacks rows that failed.
    """
    records: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.benchmark is not None:
            records[*_file(row), row.target, row.model].append(row)
    joined: set[int] = set()
    for row in reversed(rows):
        waiting = records[*_file(row), row.target, row.model] if row.benchmark is None else []
        if waiting:
            _join(waiting.pop(), row)
            joined.add(id(row))
    kept = [row for row in rows if id(row) not in joined]
    _inherit(kept)
    return kept


def _file(row: Row) -> tuple[str, str]:
    return row.source.folder, row.source.stem


def _join(record: Row, table: Row) -> None:
    """Add to a record the values that only the table has."""
    record.batch_size = record.batch_size or table.batch_size
    record.device = record.device or table.device
    record.notes += [f"also {table.place}", *table.notes]
    record.padded |= table.padded
    record.surplus |= {name: values[0] for name, values in table.values.items() if name not in record.values}


def _inherit(rows: Sequence[Row]) -> None:
    """Copy the command and the run of a file's record to the table rows of the file that have no record.

    One command writes one file, so a failed model has the flags, the run and the runner of the others.
    """
    of_file = {_file(row): row for row in reversed(rows) if row.benchmark is not None}
    for row in rows:
        record = of_file.get(_file(row))
        if row.benchmark is not None or record is None:
            continue
        row.arguments = _shared_arguments(record)
        row.notes.append("its arguments are those of the other rows of its file")
        row.uploader = record.uploader
        row.extra |= {name: record.extra[name] for name in _SURROUNDINGS if name in record.extra}
