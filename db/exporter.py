"""Exports: a side as a flat table, runs as benchmark-v3 records or bundles, into a file that is whole or not there.

A table has a row per cell and a column per metric. The published fields of a record: timestamp, repo, head_branch,
head_sha, run_attempt, runners, dependencies, benchmark {name, mode, dtype, extra_info}, model {name, type, backend,
origins}, metric {name, benchmark_values, extra_info}. `benchmark_values` holds numbers; texts stand in
`metric.extra_info` (PyTorch's benchmarks/dynamo/common.py, `output_json`; the columns of test-infra's table
`oss_ci_benchmark_v3`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pandas as pd
from sqlalchemy import Connection, select

from collector.bundle import BundleContents, RunHeader
from collector.code import pack_text
from collector.hud_configs import HUD_WORDS
from collector.metrics import METRICS
from collector.output_file import both_paths, path_of, write_output
from collector.vocabulary import Cell, Failure, Measurement, Stage, Status
from db.connecting import Source, connected
from db.importing.importer import pack_run
from db.importing.result_files import REQUEST
from db.nights import RunInfo, find_runs
from db.queries.cells import names_query
from db.queries.details import CellInfo, codes, texts_of
from db.queries.side_rows import side_rows
from db.queries.sides import Side, resolve_side
from db.schema import (
    Branch,
    CellRow,
    Commit,
    ConfigRow,
    Environment,
    Evidence,
    Planned,
    Program,
    Run,
    Samples,
    measurements,
)
from db.store_errors import ExportingError, one_line
from db.stored_values import compact, from_epoch, to_epoch, unpack

#: Characters that a spreadsheet takes for the beginning of a formula, also behind blanks and line ends, which it drops.
_FORMULAS = ("=", "+", "-", "@")
_OF_RUN = ("night", "repo", "branch", "commit", "label")


def side_table(source: Source, sides: Sequence[Side]) -> pd.DataFrame:
    """Return the rows of some sides one after the other: `side`, the names of the run, the cell, its status and every metric.

    A cell that was planned and never measured has a row without a status. `testbed` is in a few words; units are those
    of `collector.metrics`.
    """
    tables = [_of_side(source, side) for side in sides]
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


def _of_side(source: Source, side: Side) -> pd.DataFrame:
    rows = side_rows(source, side)
    runs = {run.run_id: run for run in side.runs}
    rows.insert(0, "side", side.text)
    for place, name in enumerate(_OF_RUN, start=1):
        values: list[Any] = [getattr(runs[run], name) if run in runs else None for run in rows["run_id"]]
        rows.insert(place, name, pd.Series(values, index=rows.index, dtype=object))
    return rows


def as_csv(table: pd.DataFrame) -> bytes:
    """Return the table as CSV in UTF-8, with a header line and LF as line end.

    A text that a spreadsheet would take for a formula has an apostrophe in front.
    """
    # Every text in quotes: a lone carriage return would end a line to some readers.
    return (
        without_formulas(table)
        .to_csv(quoting=csv.QUOTE_NONNUMERIC, index=False, lineterminator="\n", date_format="%Y-%m-%dT%H:%M:%S.%f%z")
        .encode("utf-8", "replace")
    )


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with an apostrophe before each text that a spreadsheet would take for a formula; numbers stay."""
    shown = table.copy()
    for name in shown.columns:
        if not pd.api.types.is_numeric_dtype(shown[name].dtype) and not hasattr(shown[name], "dt"):
            shown[name] = pd.Series([_harmless(value) for value in shown[name]], index=shown.index, dtype=object)
    return shown


def _harmless(value: Any) -> Any:
    is_formula = isinstance(value, str) and (value.lstrip().startswith(_FORMULAS) or value[:1] in ("\t", "\r"))
    return f"'{value}" if is_formula else value


def as_parquet(table: pd.DataFrame) -> bytes:
    """Return the table as Parquet. Raises `ExportingError` where pyarrow is not installed."""
    buffer = io.BytesIO()
    try:
        table.to_parquet(buffer, index=False, engine="pyarrow")
    except ImportError as error:
        raise ExportingError("Parquet needs pyarrow: pip install pyarrow, or choose --format csv") from error
    return buffer.getvalue()


#: PyTorch's names of metrics that differ from ours in the name alone, not in meaning or unit; all other metrics keep ours.
_NAMES = {"compiled_ms": "abs_latency", "compression": "compression_ratio", "graphs": "unique_graphs"}
#: Statuses in PyTorch's words; a status that it has no word for keeps ours.
_WORDS = {
    Status.OOM: "OOM",
    Status.EAGER_FAIL: "eager_fail_to_run",
    Status.NONDETERMINISTIC: "eager_two_runs_differ",
    Status.CRASHED: "infra_error",
}


def v3_lines(contents: BundleContents) -> Iterator[str]:
    """Yield the records of a run, without line ends: for each measurement one of its status and one of each metric.

    The config's request stands in `extra_info` as JSON text: the published column is a map from texts to texts.
    """
    common = _common(contents)
    for measurement in contents.measurements:
        cell = {**common, **_of_cell(measurement), "timestamp": int(to_epoch(measurement.started_at))}
        word = _WORDS.get(measurement.status, measurement.status.value)
        yield compact({**cell, "metric": {"name": "accuracy", "extra_info": {"benchmark_values": [word]}}})
        for name in dict.fromkeys([*measurement.metrics, *measurement.samples]):
            if metric := _metric(measurement, name):
                yield compact({**cell, "metric": metric})


def _common(contents: BundleContents) -> dict[str, Any]:
    header = contents.header
    return {
        "timestamp": int(to_epoch(header.started_at)),
        "schema_version": "v3",
        "name": header.label or "inductor-watch",
        "repo": header.repo,
        "head_branch": header.branch,
        "head_sha": header.commit,
        "run_attempt": contents.attempt,
        "runners": [_runner(header.testbed)],
        "dependencies": _dependencies(contents),
    }


def _runner(testbed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a testbed in the published words, as far as there are such words for it."""
    runner: dict[str, Any] = {"name": str(testbed.get("node") or ""), "type": str(testbed.get("runner") or "")}
    for ours, theirs in (("gpu", "gpu_info"), ("accelerator", "gpu_info"), ("cpu", "cpu_info")):
        if testbed.get(ours):
            runner.setdefault(theirs, str(testbed[ours]))
    if isinstance(testbed.get("cores"), int):
        runner["cpu_count"] = testbed["cores"]
    return runner


def _dependencies(contents: BundleContents) -> dict[str, dict[str, str]]:
    """Return torch and triton as the first environment names them."""
    environment = next(iter(contents.environments.values()), {})
    libraries: dict[str, dict[str, str]] = {}
    if isinstance(environment.get("torch"), str):
        sha = str(environment.get("torch_git") or "")
        libraries["torch"] = {"repo": contents.header.repo, "branch": "", "sha": sha, "version": environment["torch"]}
    if isinstance(environment.get("triton"), str):
        libraries["triton"] = {"repo": "triton-lang/triton", "branch": "", "sha": "", "version": environment["triton"]}
    return libraries


#: PyTorch's names of our suites whose models it has in a suite of another name.
_SUITES = {"timm": "timm_models", "torchvision": "torchbench"}


def _nightly_file(cell: Cell) -> dict[str, str]:
    """Return the name of the file that PyTorch's nightly writes for a config of its own, as `output`; nothing for other configs.

    PyTorch's dashboard names a config by this file.
    """
    words = HUD_WORDS.get(cell.config.config_id)
    if words is None:
        return {}
    suite = _SUITES.get(cell.suite, cell.suite)
    return {"output": f"{words}_{suite}_{cell.dtype}_{cell.phase.value}_{cell.device}_performance.csv"}


def _of_cell(measurement: Measurement) -> dict[str, Any]:
    cell = measurement.cell
    return {
        "benchmark": {
            "name": "TorchInductor",
            "mode": cell.phase.value,
            "dtype": cell.dtype,
            "extra_info": {
                "device": cell.device,
                "batch_size": cell.batch_size,
                "config": cell.config.name,
                REQUEST: compact(cell.config.to_json()),
                **_nightly_file(cell),
            },
        },
        "model": {"name": cell.model, "type": "OSS model", "backend": cell.config.backend, "origins": [cell.suite]},
    }


def _metric(measurement: Measurement, name: str) -> dict[str, Any] | None:
    """Return the record of one metric, with its finite samples if any are kept, else with its value; None without either."""
    values = [value for value in measurement.samples.get(name, ()) if math.isfinite(value)]
    if not values and name in measurement.metrics:
        values = [measurement.metrics[name]]
    if not values:
        return None
    extra = {"unit": METRICS[name].unit} if name in METRICS and METRICS[name].unit else {}
    return {"name": _NAMES.get(name, name), "extra_info": extra, "benchmark_values": values}


_Key = tuple[int, int]


def stored_run(source: Source, run_id: str) -> BundleContents:
    """Return all that the database has of a run: its header without the request, its plan, its code, its measurements.

    Measurements come in the order of the bundle, the last one of each cell and process. Samples that were thinned out are not
    there any more.
    Raises `KeyError` where there is no such run.
    """
    with connected(source) as conn:
        runs = find_runs(conn, Run.run_id == run_id)
        if not runs:
            raise KeyError(run_id)
        (run,) = runs
        cells = _cells(conn, run.key)
        measured = _measurements(conn, run.key, cells)
        generated = codes(conn, {one.code_id for one in measured if one.code_id})
        texts = texts_of(conn, {text_id for code in generated.values() for text_id in code.text_ids})
        return BundleContents(
            _header(conn, run),
            # Measured cells were planned, too: the table of plans keeps only cells without a measurement.
            planned=[cells[cell] for cell in sorted(cells)],
            environments=_used(conn, Environment.environment_id, Environment.data, "environment", run.key),
            programs=_used(conn, Program.program_id, Program.options, "program", run.key),
            codes={code_id: code.to_json() for code_id, code in generated.items()},
            texts={text_id: pack_text(text) for text_id, text in texts.items()},
            measurements=measured,
            finished_at=run.finished_at.isoformat() if run.finished_at else None,
            usage=dict(run.usage or {}),
            attempt=run.attempt,
        )


def _header(conn: Connection, run: RunInfo) -> RunHeader:
    of_branch = (Branch.repo == run.repo, Branch.name == run.branch)
    start = conn.execute(select(Commit.sha).join(Branch, Branch.start == Commit.id).where(*of_branch)).scalar()
    names = ("run_id", "branch", "commit", "testbed", "repo", "trigger", "label", "attempt", "commit_title")
    return RunHeader(
        **{name: getattr(run, name) for name in (*names, "tool_version", "night", "ci_url")},
        started_at=run.started_at.isoformat(),
        commit_date=run.commit_date.isoformat() if run.commit_date else None,
        branch_start=start or "",
    )


def _cells(conn: Connection, run: int) -> dict[int, Cell]:
    """Return the cells that a run planned or measured, by the database's own numbers."""
    planned = select(Planned.cell).where(Planned.run == run)
    wanted = planned.union(select(measurements.c.cell).where(measurements.c.run == run))
    query = names_query().add_columns(CellRow.id, ConfigRow.request).where(CellRow.id.in_(wanted))
    rows = conn.execute(query).mappings().all()
    of_cell = CellInfo.__dataclass_fields__
    return {row["id"]: CellInfo(**{name: row[name] for name in of_cell}).as_cell() for row in rows}


def _measurements(conn: Connection, run: int, cells: dict[int, Cell]) -> list[Measurement]:
    evidence = {
        (row.cell, row.replicate): row for row in conn.execute(select(Evidence.__table__).where(Evidence.run == run))
    }
    samples = _samples(conn, run)
    query = (
        select(measurements, Program.program_id, Environment.environment_id)
        .outerjoin(Program, Program.id == measurements.c.program)
        .outerjoin(Environment, Environment.id == measurements.c.environment)
        .where(measurements.c.run == run)
        .order_by(measurements.c.version, measurements.c.cell, measurements.c.replicate)
    )
    measured: list[Measurement] = []
    for row in conn.execute(query):
        key = (row.cell, row.replicate)
        behind = evidence.get(key)
        failed = row.stage is not None
        measured.append(
            Measurement(
                cell=cells[row.cell],
                status=Status(row.status),
                started_at=from_epoch(row.started_at).isoformat(),
                wall_s=row.wall_s,
                metrics={name: value for name in METRICS if (value := getattr(row, name)) is not None},
                samples=samples.get(key, {}),
                details=json.loads(behind.details or "{}") if behind else {},
                program_id=row.program_id,
                environment_id=row.environment_id,
                failure=Failure(Stage(row.stage), row.exception, row.message, row.hint) if failed else None,
                log_tail=behind.log_tail if behind else None,
                replicate=row.replicate,
                code_id=row.code_id,
            )
        )
    return measured


def _samples(conn: Connection, run: int) -> dict[_Key, dict[str, list[float]]]:
    by_cell: dict[_Key, dict[str, list[float]]] = {}
    query = select(Samples.__table__).where(Samples.run == run, Samples.data.is_not(None)).order_by(Samples.metric)
    for row in conn.execute(query):
        by_cell.setdefault((row.cell, row.replicate), {})[row.metric] = unpack(row.number_format, row.data).tolist()
    return by_cell


def _used(conn: Connection, name: Any, value: Any, column: str, run: int) -> dict[str, dict[str, Any]]:
    """Return the records of one kind that a run's measurements name; records that a bundle lost are left out."""
    used = select(measurements.c[column]).where(measurements.c.run == run)
    query = select(name, value).where(name.table.c.id.in_(used), value.is_not(None)).order_by(name)
    return {row[0]: row[1] for row in conn.execute(query)}


_TAKEN = "{} is there already: choose another place, or say --force"


def write_file(path: Path, force: bool, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file by `write_output`. Raises `ExportingError` if it is there and not forced, or cannot be written."""
    try:
        write_output(path, content, force=force)
    except FileExistsError as error:
        raise ExportingError(_TAKEN.format(one_line(str(path), 200))) from error
    except OSError as error:
        raise ExportingError(f"{one_line(str(path), 200)} cannot be written: {error.strerror or error}") from error


Format = Literal["v3", "csv", "bundle", "parquet"]


@dataclass(frozen=True, slots=True)
class Exported:
    """One file that was written; `rows` are lines of records, rows of a table, or measurements of a bundle."""

    file: str
    format: Format
    rows: int
    run_ids: tuple[str, ...]


def export_sides(source: Source, sides: Sequence[str], form: Format, target: Path, force: bool) -> list[Exported]:
    """Write some sides to a file; as bundles, write a file for each run into the folder `target`.

    Raises `SideError` for a text that names no side, `ExportingError` where the target is there or cannot be written.
    """
    if form == "bundle":
        return list(_bundles(source, _runs(source, sides), target, force))
    counts: list[int] = []
    write_file(target, force, lambda stream: counts.append(write_stream(source, sides, form, stream)))
    return [Exported(str(target), form, counts[0], _runs(source, sides))]


def write_stream(source: Source, sides: Sequence[str], form: Format, stream: BinaryIO) -> int:
    """Write some sides to an open stream in a format of one file, and return the number of rows."""
    if form == "v3":
        count = 0
        for run in _runs(source, sides):
            for line in v3_lines(stored_run(source, run)):
                stream.write(line.encode() + b"\n")
                count += 1
        return count
    table = side_table(source, _resolved(source, sides))
    stream.write(as_csv(table) if form == "csv" else as_parquet(table))
    return len(table)


def _resolved(source: Source, sides: Sequence[str]) -> list[Side]:
    return [resolve_side(source, text) for text in sides]


def _runs(source: Source, sides: Sequence[str]) -> tuple[str, ...]:
    """Return the runs of some sides, each once, in the order of the sides."""
    return tuple(dict.fromkeys(run for side in _resolved(source, sides) for run in side.run_ids))


def _bundles(source: Source, runs: Sequence[str], folder: Path, force: bool) -> Iterable[Exported]:
    files = {run: both_paths(path_of(folder, run)) for run in runs}
    for path in (path for both in files.values() for path in both):
        if path.exists() and not force:
            raise ExportingError(_TAKEN.format(one_line(str(path), 200)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportingError(f"{one_line(str(folder), 200)} cannot be made: {error.strerror or error}") from error
    for run, both in files.items():
        contents = stored_run(source, run)
        with tempfile.TemporaryDirectory(
            prefix="inductor-watch-"
        ) as workshop:  # of its own: each bundle has all its code
            made = pack_run(contents, Path(workshop))
            write_file(folder / made.name, force, made.read_bytes())
        for other in both:
            if other.name != made.name:
                other.unlink(missing_ok=True)  # forced: of two files of a run, readers would take the plain one
        yield Exported(str(folder / made.name), "bundle", len(contents.measurements), (run,))
