"""A side as a flat table, and a run as PyTorch's benchmark-v3 records.

A table has a row per cell and a column per metric. The published fields of a record: timestamp, repo, head_branch,
head_sha, run_attempt, runners, dependencies, benchmark {name, mode, dtype, extra_info}, model {name, type, backend,
origins}, metric {name, benchmark_values, extra_info}. `benchmark_values` holds numbers; texts stand in
`metric.extra_info` (PyTorch's benchmarks/dynamo/common.py, `output_json`; the columns of test-infra's table
`oss_ci_benchmark_v3`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from collector.bundle import BundleContents
from collector.metrics import METRICS
from collector.vocabulary import Measurement, Status
from db.connecting import Source
from db.errors import ExportingError
from db.importing.records import REQUEST
from db.queries.moments import to_epoch
from db.queries.side_rows import side_rows
from db.queries.sides import Side
from db.texts import compact

#: What a spreadsheet takes for the beginning of a formula, itself or behind blanks and line ends that it drops.
_FORMULAS = ("=", "+", "-", "@")
_OF_RUN = ("night", "repo", "branch", "commit", "label")


def side_table(source: Source, sides: Sequence[Side]) -> pd.DataFrame:
    """The rows of some sides one after the other: `side`, what names the run, the cell, its status and every metric.

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
    """UTF-8, a header line, LF; a text that a spreadsheet would take for a formula has an apostrophe in front."""
    # Every text in quotes: a lone carriage return would end a line to some readers.
    return (
        without_formulas(table)
        .to_csv(quoting=csv.QUOTE_NONNUMERIC, index=False, lineterminator="\n", date_format="%Y-%m-%dT%H:%M:%S.%f%z")
        .encode("utf-8", "replace")
    )


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before each text that a spreadsheet would take for a formula; numbers stay."""
    shown = table.copy()
    for name in shown.columns:
        if not pd.api.types.is_numeric_dtype(shown[name].dtype) and not hasattr(shown[name], "dt"):
            shown[name] = pd.Series([_harmless(value) for value in shown[name]], index=shown.index, dtype=object)
    return shown


def _harmless(value: Any) -> Any:
    is_formula = isinstance(value, str) and (value.lstrip().startswith(_FORMULAS) or value[:1] in ("\t", "\r"))
    return f"'{value}" if is_formula else value


def as_parquet(table: pd.DataFrame) -> bytes:
    """The same table as Parquet. Raises `ExportingError` where pyarrow is not installed."""
    buffer = io.BytesIO()
    try:
        table.to_parquet(buffer, index=False, engine="pyarrow")
    except ImportError as error:
        raise ExportingError("Parquet needs pyarrow: pip install pyarrow, or choose --format csv") from error
    return buffer.getvalue()


#: Metrics that PyTorch has by another name, with the same meaning and unit; all others keep ours.
_NAMES = {"compiled_ms": "abs_latency", "compression": "compression_ratio", "graphs": "unique_graphs"}
#: Statuses in PyTorch's words; what it has no word for keeps ours.
_WORDS = {
    Status.OOM: "OOM",
    Status.EAGER_FAIL: "eager_fail_to_run",
    Status.NONDETERMINISTIC: "eager_two_runs_differ",
    Status.CRASHED: "infra_error",
}


def v3_lines(contents: BundleContents) -> Iterator[str]:
    """The records of a run, without line ends: for each measurement one of its status and one of each metric.

    What stands in an `extra_info` is a text: the published column is a map from texts to texts.
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
    """A testbed in the published words, as far as there are such words for it."""
    runner: dict[str, Any] = {"name": str(testbed.get("node") or ""), "type": str(testbed.get("runner") or "")}
    for ours, theirs in (("gpu", "gpu_info"), ("accelerator", "gpu_info"), ("cpu", "cpu_info")):
        if testbed.get(ours):
            runner.setdefault(theirs, str(testbed[ours]))
    if isinstance(testbed.get("cores"), int):
        runner["cpu_count"] = testbed["cores"]
    return runner


def _dependencies(contents: BundleContents) -> dict[str, dict[str, str]]:
    """torch and triton as the first environment names them."""
    environment = next(iter(contents.environments.values()), {})
    libraries: dict[str, dict[str, str]] = {}
    if isinstance(environment.get("torch"), str):
        sha = str(environment.get("torch_git") or "")
        libraries["torch"] = {"repo": contents.header.repo, "branch": "", "sha": sha, "version": environment["torch"]}
    if isinstance(environment.get("triton"), str):
        libraries["triton"] = {"repo": "triton-lang/triton", "branch": "", "sha": "", "version": environment["triton"]}
    return libraries


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
            },
        },
        "model": {"name": cell.model, "type": "OSS model", "backend": cell.config.backend, "origins": [cell.suite]},
    }


def _metric(measurement: Measurement, name: str) -> dict[str, Any] | None:
    """One metric: its samples where they are kept, else its value; None where JSON can say neither as a number."""
    values = [value for value in measurement.samples.get(name, ()) if math.isfinite(value)]
    if not values and name in measurement.metrics:
        values = [measurement.metrics[name]]
    if not values:
        return None
    extra = {"unit": METRICS[name].unit} if name in METRICS and METRICS[name].unit else {}
    return {"name": _NAMES.get(name, name), "extra_info": extra, "benchmark_values": values}
