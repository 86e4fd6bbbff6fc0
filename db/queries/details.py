"""Everything about one measurement, and the generated code of measurements and censuses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, and_, select

from collector.bundle import CENSUS
from collector.code import Code
from collector.machine.host import THROTTLING
from collector.metrics import METRICS
from collector.vocabulary import CHECKED_BY, Cell, Config, Phase, Status
from db.connecting import Source, by_key, connected
from db.nights import RunInfo, called, find_runs
from db.queries.cells import EVERYTHING, CellFilter, CellName, names_query
from db.schema import (
    CellRow,
    CodeRow,
    CodeText,
    ConfigRow,
    Environment,
    Evidence,
    Program,
    Run,
    Samples,
    measurements,
    results,
)
from db.stored_values import from_epoch, unpack

#: A key in the details of a measurement that was not timed again: the store's name of the night whose results count for it.
SAME_CODE_AS = "same_code_as"


@dataclass(frozen=True, slots=True)
class CellInfo:
    """One cell of the matrix; `config` is the name of its config, `request` the config as it was requested."""

    cell_id: str
    suite: str
    model: str
    phase: str
    dtype: str
    device: str
    batch_size: int
    config: str
    config_id: str
    request: dict[str, Any]

    def as_cell(self) -> Cell:
        """Return the collector's own value of the cell, for a repro command."""
        config = Config.from_json(self.request)
        return Cell(self.suite, self.model, Phase(self.phase), self.dtype, self.device, self.batch_size, config)


@dataclass(frozen=True, slots=True)
class MeasurementInfo:
    """One measurement. `metrics` has only measured metrics; `stage` to `hint` are None unless it failed.

    `spread` is the robust relative spread of each sampled metric; `details` and `log_tail` are the evidence.
    """

    run_id: str
    cell: CellInfo
    replicate: int
    status: str
    started_at: datetime
    wall_s: float
    metrics: dict[str, float]
    spread: dict[str, float]
    stage: str | None
    exception: str | None
    message: str | None
    hint: str | None
    program_id: str | None
    environment_id: str | None
    details: dict[str, Any]
    log_tail: str | None


#: Fields of `MeasurementInfo` that are columns of the view `results`, with the same values.
_PLAIN = (
    *("run_id", "replicate", "status", "wall_s", "stage", "exception", "message", "hint"),
    *("program_id", "environment_id"),
)


def cell(source: Source, cell_id: str) -> CellInfo | None:
    """Return the cell of that id, or None."""
    query = names_query().add_columns(ConfigRow.request).where(CellRow.cell_id == cell_id)
    with connected(source) as conn:
        row = conn.execute(query).mappings().first()
    return CellInfo(**row) if row else None


def measurement(source: Source, run_id: str, cell_id: str) -> MeasurementInfo | None:
    """Return the newest measurement of a cell in a run, with its evidence; None where the run has none."""
    with connected(source) as conn:
        row, info = _row(conn, run_id, cell_id), cell(conn, cell_id)
        if row is None or info is None:
            return None
        details, log_tail = evidence(conn, run_id, cell_id, row.replicate)
        spreads = conn.execute(select(Samples.metric, Samples.spread).where(*_key(Samples, row))).all()
    return MeasurementInfo(
        **{name: getattr(row, name) for name in _PLAIN},
        cell=info,
        started_at=from_epoch(row.started_at),
        metrics={name: value for name in METRICS if (value := getattr(row, name)) is not None},
        spread={metric: spread for metric, spread in spreads if spread is not None},
        details=details,
        log_tail=log_tail,
    )


def samples(source: Source, run_id: str, cell_id: str) -> dict[str, NDArray[np.float64]]:
    """Return raw samples by metric, in the metric's unit and the order they were taken; empty where none were kept."""
    with connected(source) as conn:
        row = _row(conn, run_id, cell_id)
        if row is None:
            return {}
        query = select(Samples.metric, Samples.number_format, Samples.data)
        rows = conn.execute(query.where(*_key(Samples, row), Samples.data.is_not(None))).all()
    return {sample.metric: unpack(sample.number_format, sample.data) for sample in rows}


def evidence(
    source: Source, run_id: str, cell_id: str, replicate: int | None = None
) -> tuple[dict[str, Any], str | None]:
    """Return details (empty where there are none) and the end of the log (None where none was kept).

    Without a replicate they are those of the newest measurement.
    """
    with connected(source) as conn:
        row = _row(conn, run_id, cell_id, replicate)
        if row is None:
            return {}, None
        texts = conn.execute(select(Evidence.details, Evidence.log_tail).where(*_key(Evidence, row))).first()
        if texts is None:
            return {}, None
        return _Nights(conn).named(json.loads(texts.details or "{}"), run_id, cell_id), texts.log_tail


def references(source: Source, runs: Iterable[int], cell_ids: Iterable[str]) -> dict[tuple[str, str, int], str]:
    """Return the references of the checks of outputs (`CHECKED_BY`) by measurement (run_id, cell_id, replicate).

    `runs` are the database's numbers of runs.
    """
    found = details_with(source, CHECKED_BY, Evidence.run.in_(list(runs)), CellRow.cell_id.in_(list(cell_ids)))
    return {key: str(details[CHECKED_BY]) for key, details in found.items() if CHECKED_BY in details}


def details_with(source: Source, word: str, *where: ColumnElement[bool]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the details in which a word occurs, by run_id, cell_id and replicate.

    `where` has conditions on measurements, evidence, runs and cells.
    """
    row = measurements.c
    of_row = (row.run == Evidence.run, row.cell == Evidence.cell, row.replicate == Evidence.replicate)
    query = (
        select(Run.run_id, CellRow.cell_id, Evidence.replicate, Evidence.details)
        .join(measurements, and_(*of_row))
        .join(Run, Run.id == Evidence.run)
        .join(CellRow, CellRow.id == Evidence.cell)
        .where(*where)
    )
    with connected(source) as conn:
        found = {row[:3]: json.loads(row.details) for row in conn.execute(query) if word in (row.details or "")}
        nights = _Nights(conn)
        return {key: nights.named(details, *key[:2]) for key, details in found.items()}


def details_of(source: Source, runs: Iterable[int], cell_id: str) -> list[dict[str, Any]]:
    """Return the details of all measurements of a cell that passed in these runs (by number), in the order of their keys."""
    passed = measurements.c.status == Status.PASS.value
    found = details_with(source, "", Evidence.run.in_(list(runs)), CellRow.cell_id == cell_id, passed)
    return [found[key] for key in sorted(found)]


class _Nights:
    """The store's names of nights that bundles name: two nights of one name have different names in the store (`db.nights`)."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._stored: dict[str, list[str]] = {}

    def named(self, details: dict[str, Any], run_id: str, cell_id: str) -> dict[str, Any]:
        """Return a measurement's details with the store's name of the night that timed its code."""
        name = details.get(SAME_CODE_AS)
        if not isinstance(name, str):
            return details
        if name not in self._stored:
            nights = select(Run.night).where(called(Run.night, name)).distinct()
            self._stored[name] = list(self._conn.execute(nights).scalars())
        if len(self._stored[name]) < 2:
            return details
        return {**details, SAME_CODE_AS: self._timed(name, run_id, cell_id) or name}

    def _timed(self, name: str, run_id: str, cell_id: str) -> str | None:
        """Return the last night of this name that timed the code that a cell has in a run, before that run."""
        row = _row(self._conn, run_id, cell_id)
        if row is None:
            return None
        of_cell = (results.c.cell_id == cell_id, results.c.code_id == row.code_id, results.c.compiled_ms.is_not(None))
        query = select(results.c.night).where(called(results.c.night, name), *of_cell)
        before = results.c.run_started_at < row.run_started_at
        query = query.where(before).order_by(results.c.run_started_at.desc(), results.c.started_at.desc())
        return self._conn.execute(query.limit(1)).scalar()


def program(source: Source, program_id: str) -> dict[str, Any] | None:
    """Return the effective options behind a `program_id`; None if it is unknown or its record was lost."""
    with connected(source) as conn:
        return conn.execute(select(Program.options).where(Program.program_id == program_id)).scalar()


def environment(source: Source, environment_id: str) -> dict[str, Any] | None:
    """Return the fingerprint behind an `environment_id`; None if it is unknown or its record was lost."""
    with connected(source) as conn:
        return conn.execute(select(Environment.data).where(Environment.environment_id == environment_id)).scalar()


def configs_of(source: Source, config_ids: Iterable[str]) -> dict[str, Config]:
    """Return the configs of these `config_id`s that the database knows and this version can read."""
    configs: dict[str, Config] = {}
    for config_id, request in by_key(source, ConfigRow.config_id, ConfigRow.request, config_ids).items():
        with suppress(ValueError, TypeError):  # another version's request cannot be measured here
            configs[config_id] = Config.from_json(request)
    return configs


def throttled_by(details: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the reasons that held a GPU's clocks down right after the timed rounds, sorted; None where none were read (a CPU).

    Reasons before the rounds do not count: they come from the GPU's work until then.
    """
    readings = details.get("surroundings")
    after = readings.get("after") if isinstance(readings, Mapping) else None
    reasons = after.get("clocks_held_by") if isinstance(after, Mapping) else None
    if not isinstance(reasons, list | tuple):
        return None
    return tuple(sorted(name for name in THROTTLING if name in reasons))


def _row(conn: Connection, run_id: str, cell_id: str, replicate: int | None = None) -> Row[Any] | None:
    query = select(results).where(results.c.run_id == run_id, results.c.cell_id == cell_id)
    if replicate is not None:
        query = query.where(results.c.replicate == replicate)
    return conn.execute(query.order_by(results.c.started_at.desc(), results.c.replicate.desc()).limit(1)).first()


def _key(table: type[Samples | Evidence], row: Row[Any]) -> tuple[ColumnElement[bool], ...]:
    """Return the condition that a row of `table` belongs to a row of `results`."""
    run = select(Run.id).where(Run.run_id == row.run_id).scalar_subquery()
    of_cell = select(CellRow.id).where(CellRow.cell_id == row.cell_id).scalar_subquery()
    return table.run == run, table.cell == of_cell, table.replicate == row.replicate


#: Keys in the details of a timed measurement that describe its kernels, its memory and the host.
_OF_KERNELS = (
    *("compiled_kernels", "eager_kernels", "outside_kernels", "autotuned", "kernel_lines"),
    *("saved_tensors", "peak_lines", "host_parts_us", "roof", "no_roof"),
)


def code_of(source: Source, run_id: str, cell_id: str) -> Code | None:
    """Return the code of a run's newest measurement of a cell; None where none is stored."""
    query = select(results.c.code_id).where(results.c.run_id == run_id, results.c.cell_id == cell_id)
    with connected(source) as conn:
        code_id = conn.execute(
            query.order_by(results.c.started_at.desc(), results.c.replicate.desc()).limit(1)
        ).scalar()
        return codes(conn, [code_id]).get(code_id) if code_id else None


def codes(source: Source, code_ids: Iterable[str]) -> dict[str, Code]:
    """Return the codes of these ids; ids that are not stored are left out."""
    stored = by_key(source, CodeRow.code_id, CodeRow.graphs, code_ids)
    return {key: Code.from_json({"code_id": key, "graphs": json.loads(graphs)}) for key, graphs in stored.items()}


def texts_of(source: Source, text_ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of these ids; ids that are not stored are left out."""
    return by_key(source, CodeText.text_id, CodeText.text, text_ids)


def with_kernels(source: Source, cell_id: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return a measurement's details, with the kernels of the night that timed its code if it was not timed again."""
    row = results.c
    timed = select(row.run_id).where(row.night == details.get(SAME_CODE_AS), row.cell_id == cell_id)
    timed = timed.where(row.compiled_ms.is_not(None)).order_by(row.started_at.desc()).limit(1)
    with connected(source) as conn:
        run_id = conn.execute(timed).scalar() if details.get(SAME_CODE_AS) else None
        earlier = evidence(conn, run_id, cell_id)[0] if run_id else {}
    return {name: earlier[name] for name in _OF_KERNELS if name in earlier} | dict(details)


def is_untimed() -> ColumnElement[bool]:
    """Return the condition that a measurement was compiled and not timed (`Settings.code_only`, or its code was known)."""
    row = measurements.c
    return and_(row.status == Status.PASS.value, row.code_id.is_not(None), row.compiled_ms.is_(None))


def same_code_as(source: Source, runs: Iterable[int]) -> dict[tuple[str, str, int], str]:
    """Return the night whose results count for each measurement of these runs (by number) that was not timed for that reason.

    The keys are run_id, cell_id and replicate.
    """
    found = details_with(source, SAME_CODE_AS, Evidence.run.in_(list(runs)), is_untimed())
    return {key: str(details[SAME_CODE_AS]) for key, details in found.items() if details.get(SAME_CODE_AS)}


#: The most runs that are read, the newest ones.
_RUNS = 200
_NAMES = tuple(field.name for field in fields(CellName))


@dataclass(frozen=True, slots=True)
class CensusCodes:
    """One census: its run, and the `code_id` of each cell whose code is known."""

    run: RunInfo
    codes: dict[CellName, str]

    @property
    def device_name(self) -> str:
        """The device that the code is for."""
        return str(self.run.testbed.get(CENSUS, ""))


def census_codes(source: Source, filters: CellFilter = EVERYTHING) -> list[CensusCodes]:
    """Return the newest censuses that have code under the filters, newest first."""
    with connected(source) as conn:
        runs = {run.run_id: run for run in find_runs(conn, Run.trigger == CENSUS)[:_RUNS]}
        row = results.c
        query = select(row.run_id, row.code_id, *(row[name] for name in _NAMES)).where(
            row.run_id.in_(runs),
            row.code_id.is_not(None),
            row.status == Status.NOT_CHECKED.value,
            *filters.of_results(),
        )
        codes: dict[str, dict[CellName, str]] = {}
        for run_id, code_id, *names in conn.execute(query):
            codes.setdefault(run_id, {})[CellName(*names)] = code_id
    return [CensusCodes(run, codes[run_id]) for run_id, run in runs.items() if run_id in codes]
