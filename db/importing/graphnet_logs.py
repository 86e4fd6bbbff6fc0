"""Logs of GraphNet's `test_compiler` and `eval_backend_perf`: lines with a tag in brackets, sample after sample.

Facts: PaddlePaddle/GraphNet at 1dcbd6690. It times eager first and compiled afterwards, five calls each, and prints
statistics in milliseconds; it records no compile time, no memory and no graph breaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from collector.vocabulary import Failure, Measurement, Stage, Status
from db.importing.result_rows import ImportingError, Row, Source, Target, Value, lines_of, number, plain, spelled
from db.store_errors import one_line

_TAGS = "Processing|Config|Datatype|DataType|Performance|Correctness|Result|Speedup|max_diff|mean_diff|Fail|Profiling"
_LINE = re.compile(rf"^(?P<prompt>.*?)\[(?P<tag>{_TAGS})\](?:\[(?P<of>[^\]]*)\])?\s*:?\s*(?P<text>.*)$")
#: Statistics of one side: `e2e` is the wall clock around a synchronised call.
_WALL = "e2e"
#: The relative tolerance that goes with an absolute one of 1e-5, as torch.testing has them.
_RTOL = {"float32": 1.3e-6, "float16": 1e-3, "bfloat16": 1.6e-2, "float64": 1e-7}
_ATOL = 1e-5
_CLOSE = re.compile(r"all_close_atol_([\d.eE+-]+)_rtol_([\d.eE+-]+)")


def is_log(text: str) -> bool:
    """Whether a text has a line that starts a sample."""
    return "[Processing]" in text[: 1 << 20]


def read_log(source: Source, damage: list[str]) -> list[Row]:
    """A row per sample. Lines without a tag are ignored. Raises `ImportingError` where no sample begins in it."""
    rows: list[Row] = []
    for line, match in _tagged(source):
        if match["tag"] == "Processing":
            rows.append(_begin(source, line, match["text"].strip()))
        elif rows:
            _take(rows[-1], line, match, damage)
        else:
            damage.append(f"{source.name}:{line}: [{match['tag']}] before any [Processing]: left out")
    if not rows:
        raise ImportingError(f"{source.name} has no [Processing] line: not a log of GraphNet")
    for row in rows:
        _name(row)
    return rows


def _tagged(source: Source) -> Iterator[tuple[int, re.Match[str]]]:
    for line, text in enumerate(lines_of(source.text), start=1):
        # Tags come early in a line; a line of megabytes is not searched.
        if match := _LINE.match(text) if "[" in text[:2000] else None:
            yield line, match


def _begin(source: Source, line: int, path: str) -> Row:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    # What lies below `samples/` names a sample: source and model.
    below = parts[parts.index("samples") + 1 :] if "samples" in parts else parts[-2:]
    name = "/".join(below) or "unnamed"
    return Row(source, line, Target.GRAPHNET, name, {}, suite="graphnet", mode="inference")


def _take(row: Row, line: int, match: re.Match[str], damage: list[str]) -> None:
    tag, of, text = match["tag"], match["of"] or "", match["text"].strip()
    if tag == "Config":
        key, _, value = text.partition(":")
        row.extra.setdefault("config", {})[key.strip()] = value.strip()
        return
    if tag == "Performance":
        try:
            statistics = plain(json.loads(text))
        except (ValueError, RecursionError) as error:
            damage.append(f"{row.source.name}:{line}: statistics of {one_line(of)!r} are no JSON: kept as text")
            row.notes.append(f"line {line}: {type(error).__name__}")
            statistics = text
        row.extra.setdefault("performance", {})[of] = statistics
        return
    row.values.setdefault(f"{tag}.{of}" if of else tag, []).append(spelled(text) if text else None)


def _name(row: Row) -> None:
    """Fills in the cell's fields from the sample's [Config] and data types."""
    config: dict[str, str] = row.extra.get("config", {})
    types = " ".join(str(row.first(name)) for name in ("Datatype.eager", "DataType", "Datatype") if row.first(name))
    row.dtype = next((name for name in (*_RTOL, "int8") if name in types), None)
    row.device = (config.get("device") or "").partition(":")[0] or None
    row.backend = config.get("compiler") or None
    if hardware := config.get("hardware"):
        row.extra["runners"] = [{"gpu_info" if row.device == "cuda" else "cpu_info": hardware}]


def judge(measurement: Measurement, row: Row) -> None:
    """Sets status, metrics and failure of a sample's measurement."""
    performance = row.extra.get("performance", {})
    eager, compiled = (_median(performance.get(side)) for side in ("eager", "compiled"))
    speedup = number(row.first(f"Speedup.{_WALL}"))
    metrics = {"eager_ms": eager, "compiled_ms": compiled, "speedup": speedup}
    measurement.metrics = {name: value for name, value in metrics.items() if value is not None and value > 0}
    measurement.status, stage, reason = _outcome(row, eager is not None)
    if measurement.status is not Status.PASS:
        measurement.failure = Failure(stage, one_line(reason), f"GraphNet's log says so in {row.place}")


def _median(statistics: Any) -> float | None:
    wall = statistics.get(_WALL) if isinstance(statistics, dict) else None
    return number(wall.get("median")) if isinstance(wall, dict) else None


def _outcome(row: Row, eager_ran: bool) -> tuple[Status, Stage, str]:
    """Status, stage and reason of a sample."""
    line = str(row.first("Result") or "")
    result = line.partition(":")[2].strip() or line.strip()
    if not result:
        return Status.CRASHED, Stage.START, "the log ends before the result"
    if result != "success":
        # A failed compilation and a failed eager run look alike there but for the eager statistics.
        failed = (Status.FAIL_TO_RUN, Stage.COMPILE) if eager_ran else (Status.EAGER_FAIL, Stage.EAGER)
        return (*failed, result)
    types = (value for name in ("DataType", "Datatype") for value in row.values.get(name, []))
    if any("match:false" in str(value).lower() for value in types):
        return Status.FAIL_ACCURACY, Stage.CORRECTNESS, "data types differ"
    if _is_correct(row) is False:
        return Status.FAIL_ACCURACY, Stage.CORRECTNESS, "outputs differ"
    return Status.PASS, Stage.DONE, ""


def _is_correct(row: Row) -> bool | None:
    """Judged by the tolerances of torch.testing, else by equality; None if the log has neither."""
    rtol = _RTOL.get(row.dtype or "")
    for name, values in row.values.items():
        close = _CLOSE.search(name)
        if close and number(close[1]) == _ATOL and number(close[2]) == rtol:
            return _all_ones(values)
    equal = row.values.get("Correctness.equal")
    return _all_ones(equal) if equal else None


def _all_ones(values: list[Value]) -> bool:
    return all(word in ("1", "True", "1.0") for value in values for word in str(value).split())
