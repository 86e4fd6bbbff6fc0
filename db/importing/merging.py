"""Rows of one run as measurements: performance, accuracy and side files of a cell become one measurement.

The accuracy decides the status, the performance gives numbers and the batch size. PyTorch checks accuracy on smaller
batches than it times, so the two are joined on everything but the batch size; the accuracy's own is kept in the details.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collector.process.outcome import Outcome
from collector.vocabulary import Cell, Failure, Measurement, Stage, Status, short_hash
from db.errors import one_line
from db.importing import graphnet
from db.importing.cells import Identity
from db.importing.meanings import METRIC_OF, meaning_of, metrics_of
from db.importing.rows import Row, Target, Value, number, plain, spelled
from db.importing.tables import parse_name
from db.queries.moments import from_epoch

#: Arguments of a model's own row; all others belong to the program and are kept once, in the environment.
_PER_ROW = ("only", "output", "batch_size", "device_index", "partition_id", "total_partitions")
#: Parts of a record that describe the machine and the libraries of a run.
SURROUNDINGS = ("runners", "dependencies")


def evidence_of(row: Row) -> dict[str, Any]:
    """All content of a row, without what `environment_of` keeps."""
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
    """Each column's value, or the list of its values if there are several."""
    return {name: found[0] if len(found) == 1 else list(found) for name, found in values.items()}


def phases_of(row: Row) -> dict[str, Any]:
    """Seconds by phase of the compiler; a text that is no number stays one."""
    return {name: spelled(value) if isinstance(value, str) else value for name, value in flat(row.values).items()}


def environment_of(rows: Iterable[tuple[str, Row]]) -> dict[str, Any]:
    """The environment of a cell's rows as a flat mapping: arguments by target, libraries, runner. May be empty."""
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


_ACCURACY_PHASES = "accuracy_compile_phases"


@dataclass(slots=True)
class _Found:
    """The rows of one cell of any batch size, by target."""

    by_target: dict[Target, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def batches(self, target: Target) -> set[int]:
        """The batch sizes in its rows."""
        return {row.batch_size for row in self.by_target[target] if row.batch_size}


def merge(rows: Sequence[tuple[Identity, Row]], started_at: str, is_dated: bool, problems: list[str]) -> list[Outcome]:
    """One outcome per cell and replicate, in the order in which the cells were met.

    With `is_dated` the caller gave the date, and all measurements start at `started_at`; else each starts when its records say.
    A cell with several rows of a kind was measured several times: each is a replicate, and the last one counts.
    """
    cells: dict[Identity, _Found] = defaultdict(_Found)
    for identity, row in rows:
        cells[identity].by_target[row.target].append(row)
    siblings = _siblings(cells)
    outcomes: list[Outcome] = []
    for identity, found in cells.items():
        for row_set in _row_sets(found, {target: siblings[target, _same_model(identity)] for target in _LEADING}):
            outcomes.append(_outcome(identity, row_set, started_at, is_dated, problems))
    return _with_replicates(outcomes)


#: The leading row of a measurement is of the first of these kinds that the cell has.
_LEADING = (Target.PERFORMANCE, Target.ACCURACY, Target.PHASES)


def _same_model(identity: Identity) -> tuple[str, ...]:
    """The key of a batch size: PyTorch has one per suite, model and phase, for all configs."""
    return (identity.suite, identity.model, identity.phase, identity.dtype, identity.device)


def _siblings(cells: dict[Identity, _Found]) -> dict[tuple[Target, tuple[str, ...]], set[int]]:
    """The batch sizes of a model's rows under any config."""
    found: dict[tuple[Target, tuple[str, ...]], set[int]] = defaultdict(set)
    for identity, rows in cells.items():
        for target in _LEADING:
            found[target, _same_model(identity)] |= rows.batches(target)
    return found


@dataclass(slots=True)
class _RowSet:
    """What makes up one measurement."""

    batch_size: int
    rows: dict[str, Row] = field(default_factory=dict)
    superseded: list[Row] = field(default_factory=list)
    breaks: list[Row] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)


def _row_sets(found: _Found, siblings: dict[Target, set[int]]) -> Iterator[_RowSet]:
    of = found.by_target
    for row in of[Target.GRAPHNET]:
        yield _RowSet(row.batch_size or 0, {Target.GRAPHNET: row})
    if not any(of[target] for target in Target if target is not Target.GRAPHNET):
        return
    leading = next((target for target in _LEADING if of[target]), None)
    groups: dict[int, list[_RowSet]] = defaultdict(list)
    for row in of[leading] if leading else ():
        batch = row.batch_size or _batch_size(found, siblings, leading)
        name = _ACCURACY_PHASES if leading is Target.PHASES and _is_of_accuracy(row) else str(leading)
        groups[batch].append(_RowSet(batch, {name: row}))
    sets = list(groups.values()) or [[_RowSet(0)]]
    beside = {
        Target.ACCURACY.value: of[Target.ACCURACY],
        Target.PHASES.value: [row for row in of[Target.PHASES] if not _is_of_accuracy(row)],
        _ACCURACY_PHASES: [row for row in of[Target.PHASES] if _is_of_accuracy(row)],
    }
    for name, rows in beside.items() if leading is not Target.PHASES else ():
        if name != leading:
            _attach(sets, name, rows)
    sets[-1][-1].breaks, sets[-1][-1].others = of[Target.BREAKS], of[Target.OTHER]
    for group in sets:
        yield from group


def _batch_size(found: _Found, siblings: dict[Target, set[int]], leading: Target | None) -> int:
    """The batch size of a row without one; PyTorch uses 0 for "unknown"."""
    told = [found.batches(leading), siblings[leading]] if leading else []
    certain = [batches for batches in (*told, found.batches(Target.PHASES)) if len(batches) == 1]
    return max(certain[0] if certain else found.batches(Target.ACCURACY), default=0)


def _is_of_accuracy(row: Row) -> bool:
    return row.flag("accuracy") is True or parse_name(row.source.stem).beside is Target.ACCURACY


def _attach(groups: Sequence[Sequence[_RowSet]], name: str, rows: Sequence[Row]) -> None:
    """Joins rows of another kind, the last with the last; rows without a partner stay as evidence."""
    used: set[int] = set()
    for group in groups:
        fitting = [row for row in rows if row.batch_size == group[-1].batch_size] or rows
        for row_set, row in zip(reversed(group), reversed(fitting), strict=False):
            row_set.rows[name] = row
            used.add(id(row))
    groups[0][0].superseded += [row for row in rows if id(row) not in used]


def _outcome(identity: Identity, row_set: _RowSet, started_at: str, is_dated: bool, problems: list[str]) -> Outcome:
    cell = Cell(
        identity.suite,
        identity.model,
        identity.phase,
        identity.dtype,
        identity.device,
        row_set.batch_size,
        identity.config,
    )
    begun = [row.told.timestamp for row in row_set.rows.values() if row.told.timestamp is not None]
    start = from_epoch(min(begun)).isoformat() if begun and not is_dated else started_at
    measurement = Measurement(cell, Status.SKIPPED, start, wall_s=0.0, details=_details(row_set))
    log = row_set.rows.get(Target.GRAPHNET)
    if log is not None:
        graphnet.judge(measurement, log)
    else:
        performance, accuracy = (row_set.rows.get(name) for name in (Target.PERFORMANCE, Target.ACCURACY))
        measurement.metrics, measurement.samples = metrics_of(performance, accuracy, cell.device)
        if performance is not None:
            _sample_the_rest(measurement, performance)
        _judge(measurement, performance, accuracy, problems)
    environment = environment_of(row_set.rows.items())
    if environment:
        measurement.environment_id = short_hash(environment)
    return Outcome(measurement, environment)


def _sample_the_rest(measurement: Measurement, row: Row) -> None:
    """Keeps several values of a column as samples, even if it is no metric here."""
    for name, values in row.values.items():
        numbers = [value for value in map(number, values) if value is not None]
        if len(values) > 1 and len(numbers) == len(values) and METRIC_OF.get(name) not in measurement.samples:
            measurement.samples.setdefault(name, numbers)


def _details(row_set: _RowSet) -> dict[str, Any]:
    imported: dict[str, Any] = {}
    details: dict[str, Any] = {"imported": imported}
    for name, row in row_set.rows.items():
        imported[str(name)] = evidence_of(row)
        if row.target is Target.PHASES:
            key = f"{name}_s"
            details[key] = phases_of(row)
            imported[str(name)].pop("values", None)
            if row.padded and row.kind.benchmark is None:
                imported[str(name)]["notes"] = [*row.notes, "shorter than the header: its names may be another row's"]
    for key, rows in (("superseded", row_set.superseded), ("graph_breaks", row_set.breaks), ("other", row_set.others)):
        if rows:
            imported[key] = [evidence_of(row) for row in rows]
    return details


def _judge(measurement: Measurement, performance: Row | None, accuracy: Row | None, problems: list[str]) -> None:
    """Sets status and failure: by the accuracy if there is one, else by whether the model ran."""
    is_timed = performance is not None and "speedup" in measurement.metrics
    word = _word(accuracy)
    if word:
        _by_word(measurement, word, accuracy, performance is not None, problems)
    elif performance is not None:
        measurement.status = Status.PASS if is_timed or not _tells_speedup(performance) else Status.FAIL_TO_RUN
    if measurement.status is Status.PASS and performance is not None and _tells_speedup(performance) and not is_timed:
        measurement.status = Status.FAIL_TO_RUN
    if measurement.status is Status.FAIL_TO_RUN and measurement.failure is None and performance is not None:
        said = one_line(str(performance.first("speedup")))
        message = f"the performance run failed: speedup {said} in {performance.place}"
        measurement.failure = Failure(Stage.TIMING, "performance run failed", message)


def _word(accuracy: Row | None) -> str:
    value = None if accuracy is None else accuracy.first("accuracy")
    return value.strip() if isinstance(value, str) else ""


def _tells_speedup(row: Row) -> bool:
    return row.first("speedup") is not None


def _by_word(measurement: Measurement, word: str, accuracy: Row | None, was_run: bool, problems: list[str]) -> None:
    meaning = meaning_of(word)
    place = accuracy.place if accuracy else ""
    measurement.status = meaning.status
    if word == "pass_due_to_skip" and not was_run:
        measurement.status = Status.SKIPPED  # nothing was checked, and nothing ran
    if not meaning.is_known:
        problems.append(
            f"{place}: unknown word {one_line(word)!r} for a result: taken for {meaning.status}, kept as it is"
        )
    if measurement.status not in (Status.PASS, Status.SKIPPED):
        measurement.failure = Failure(meaning.stage, word, f"the accuracy run says {one_line(word)} in {place}")


def _with_replicates(outcomes: list[Outcome]) -> list[Outcome]:
    """Numbers the measurements of each cell, in their order."""
    seen: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        cell_id = outcome.measurement.cell.cell_id
        outcome.measurement.replicate = seen[cell_id]
        seen[cell_id] += 1
    return outcomes
