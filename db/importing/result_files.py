"""The files of results of PyTorch and of GraphNet as rows.

Of PyTorch there are the tables of benchmarks/dynamo, and benchmark-v3 records. Rows may be padded with zeros, or longer than
their header; PyTorch writes none that is shorter, so that a shorter one was cut off. PyTorch's nightly names its files
`<backend>_<config>_<suite>_<dtype>_<mode>_<device>_<target>[_<side file>]`, after `test_perf_for_dashboard` in PyTorch's
`.ci/pytorch/test.sh`. Both `timm_models` and the words of a config contain `_`, so the suite's name is the anchor.

A record has one metric of one model. Records that agree in everything else are one row. Where a metric comes again, the
model was measured again and a new row begins.

Logs of GraphNet's `test_compiler` and `eval_backend_perf` are lines with a tag in brackets, sample after sample. Facts:
PaddlePaddle/GraphNet at 1dcbd6690. It times eager first and compiled afterwards, five calls each, and prints statistics in
milliseconds; it records no compile time, no memory and no graph breaks.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.vocabulary import Failure, Measurement, Stage, Status
from db.importing.result_rows import (
    ImportingError,
    Row,
    Source,
    Target,
    Uploader,
    Value,
    lines_of,
    meant,
    number,
    plain,
    spelled,
    whole_number,
)
from db.store_errors import one_line
from db.stored_values import error_text, to_epoch

_TAGS = "Processing|Config|Datatype|DataType|Performance|Correctness|Result|Speedup|max_diff|mean_diff|Fail|Profiling"
_LINE = re.compile(rf"^(?P<prompt>.*?)\[(?P<tag>{_TAGS})\](?:\[(?P<of>[^\]]*)\])?\s*:?\s*(?P<text>.*)$")
#: Statistics of one side: `e2e` is the wall clock around a synchronised call.
_WALL = "e2e"
#: The relative tolerance that goes with an absolute one of 1e-5, as torch.testing has them.
_RTOL = {"float32": 1.3e-6, "float16": 1e-3, "bfloat16": 1.6e-2, "float64": 1e-7}
_ATOL = 1e-5
_CLOSE = re.compile(r"all_close_atol_([\d.eE+-]+)_rtol_([\d.eE+-]+)")


def is_log(text: str) -> bool:
    """Return whether a text has a line that starts a sample."""
    return "[Processing]" in text[: 1 << 20]


def read_log(source: Source, damage: list[str]) -> list[Row]:
    """Return a row per sample. Lines without a tag are ignored. Raises `ImportingError` where no sample begins in it."""
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
    """Fill in the cell's fields from the sample's [Config] and data types."""
    config: dict[str, str] = row.extra.get("config", {})
    types = " ".join(str(row.first(name)) for name in ("Datatype.eager", "DataType", "Datatype") if row.first(name))
    row.dtype = next((name for name in (*_RTOL, "int8") if name in types), None)
    row.device = (config.get("device") or "").partition(":")[0] or None
    row.backend = config.get("compiler") or None
    if hardware := config.get("hardware"):
        row.extra["runners"] = [{"gpu_info" if row.device == "cuda" else "cpu_info": hardware}]


def judge(measurement: Measurement, row: Row) -> None:
    """Set status, metrics and failure of a sample's measurement."""
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
    """Return status, stage and reason of a sample."""
    line = str(row.first("Result") or "")
    result = line.partition(":")[2].strip() or line.strip()
    if not result:
        return Status.CRASHED, Stage.START, "the log ends before the result"
    if result != "success":
        # In the result, a failed compilation looks like a failed eager run, which has no eager statistics.
        failed = (Status.FAIL_TO_RUN, Stage.COMPILE) if eager_ran else (Status.EAGER_FAIL, Stage.EAGER)
        return (*failed, result)
    types = (value for name in ("DataType", "Datatype") for value in row.values.get(name, []))
    if any("match:false" in str(value).lower() for value in types):
        return Status.FAIL_ACCURACY, Stage.CORRECTNESS, "data types differ"
    if _is_correct(row) is False:
        return Status.FAIL_ACCURACY, Stage.CORRECTNESS, "outputs differ"
    return Status.PASS, Stage.DONE, ""


def _is_correct(row: Row) -> bool | None:
    """Return whether outputs agree, by the tolerances of torch.testing, else by equality; None if the log has neither."""
    rtol = _RTOL.get(row.dtype or "")
    for name, values in row.values.items():
        close = _CLOSE.search(name)
        if close and number(close[1]) == _ATOL and number(close[2]) == rtol:
            return _all_ones(values)
    equal = row.values.get("Correctness.equal")
    return _all_ones(equal) if equal else None


def _all_ones(values: list[Value]) -> bool:
    return all(word in ("1", "True", "1.0") for value in values for word in str(value).split())


SUITES = ("torchbench", "huggingface", "timm_models")
_NAME = re.compile(
    r"(?:(?P<config>.*?)_)?(?P<suite>" + "|".join(SUITES) + r"|timm)"
    r"_(?P<dtype>amp|bfloat16|float16|float32|float64|quant|notset)"
    r"_(?P<mode>training|inference)"
    r"(?:_(?P<end>.*))?"
)
_SIDE = re.compile(r"_(compilation_metrics|graph_breaks|graph_break_deduped|stats)(?=$|[-_.])")
_TARGET = re.compile(r"(?:^|[-_])(performance|accuracy)(?=$|[-_.])")
#: No file's name is longer; a longer text is no name of PyTorch's.
_LONGEST = 500
_SIDES = {
    "compilation_metrics": Target.PHASES,
    "graph_breaks": Target.BREAKS,
    "graph_break_deduped": Target.BREAKS,
    "stats": Target.OTHER,
}


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of a name. `config` still has its backend in front; `beside` is the target of the file it lies beside."""

    config: str = ""
    suite: str | None = None
    dtype: str | None = None
    mode: str | None = None
    device: str | None = None
    target: Target | None = None
    beside: Target | None = None


def parse_name(stem: str) -> FileName:
    """Return the parts of a file's name without its ending; missing parts are None, a missing config is empty."""
    side_match = _SIDE.search(stem)
    side = _SIDES[side_match[1]] if side_match else None
    main = stem[: side_match.start()] if side_match else stem
    match = _NAME.fullmatch(main) if len(stem) < _LONGEST else None
    end = main if match is None else match["end"] or ""
    target = _TARGET.search(end)
    beside = Target(target[1]) if target else None
    if match is None:
        return FileName(target=side or beside, beside=beside)
    device = (end[: target.start()] if target else end) or None
    return FileName(
        match["config"] or "", match["suite"], match["dtype"], match["mode"], device, side or beside, beside
    )


#: Characters of one field: the module's own limit is below what a stack trace in a table may have.
_LONGEST_FIELD = 1 << 26
#: PyTorch's names of the columns that name a row, first those of its tables, then those of its lists of graph breaks.
_NAMES, _DEVICES, _BATCHES = ("name", "model"), ("dev", "device"), ("batch_size",)
_NAMING = {*_NAMES, *_DEVICES, *_BATCHES}
#: Columns of a row that failed before anything was counted; its other columns are zeros as padding.
_OF_A_FAILURE = {"tag", "speedup", "abs_latency", "accuracy"}
#: Columns that make a line a header rather than a row.
_TELLING = {"speedup", "accuracy", "abs_latency", "batch_size", "reason", "graph_breaks"}


def read_table(source: Source, damage: list[str]) -> list[Row]:
    """Return the rows of a table. A damaged line is left out and reported in `damage` as `FILE:LINE: ...`.

    Raises `ImportingError` for a table that is empty, or has no column with the names of models.
    """
    header: list[str] = []
    rows: list[Row] = []
    target = parse_name(source.stem).target
    for line, cells in _records(source, damage):
        if _is_header(cells):
            header = _distinct(cells)
        elif not header:
            raise ImportingError(
                f"{source.name}: its first line names no column `name`: not a table of benchmarks/dynamo"
            )
        elif len(cells) < len(header):
            damage.append(f"{source.name}:{line}: cut off after {len(cells)} of {len(header)} columns: left out")
        elif row := _row(source, line, header, cells, target):
            rows.append(row)
        else:
            damage.append(f"{source.name}:{line}: no name of a model: left out")
    if not header:
        raise ImportingError(f"{source.name} is empty: nothing to import")
    return rows


def _records(source: Source, damage: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of every line that is not empty; a record of several lines has the number of its last line."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(io.StringIO(source.text, newline=""), strict=True)
    try:
        while True:
            try:
                fields = next(reader)
            except csv.Error as error:
                damage.append(f"{source.name}:{reader.line_num}: {error}: left out")
                continue
            if any(field.strip() for field in fields):
                yield reader.line_num, fields
    except StopIteration:
        return
    finally:
        csv.field_size_limit(before)


def _is_header(cells: Sequence[str]) -> bool:
    words = {cell.strip() for cell in cells}
    named = words.intersection(_NAMES)
    # A second header in the middle: tables of several shards in one file.
    return bool(named and (words & _TELLING or words & set(_DEVICES)))


def _distinct(cells: Sequence[str]) -> list[str]:
    """Return the names of the columns; a repeated name gets its column's number."""
    names: dict[str, None] = {}
    for index, cell in enumerate(cells, start=1):
        name = cell.strip() or f"column_{index}"
        names[name if name not in names else f"{name}#{index}"] = None
    return list(names)


def _row(source: Source, line: int, header: list[str], cells: list[str], target: Target | None) -> Row | None:
    named = dict(zip(header, cells, strict=False))
    named |= {f"column_{index}": cell for index, cell in enumerate(cells[len(header) :], start=len(header) + 1) if cell}
    model = next((named[name] for name in _NAMES if named.get(name, "").strip()), None)
    if model is None:
        return None
    values: dict[str, list[Value]] = {name: [spelled(cell)] for name, cell in named.items() if name not in _NAMING}
    row = Row(
        source,
        line,
        target or _target(header),
        model,
        values,
        device=next((named[name].strip() or None for name in _DEVICES if name in named), None),
        batch_size=whole_number(named.get("batch_size")) or None,
    )
    _drop_padding(row, named)
    return row


def _target(header: Sequence[str]) -> Target:
    if "accuracy" in header:
        return Target.ACCURACY
    if "speedup" in header or "abs_latency" in header:
        return Target.PERFORMANCE
    return Target.BREAKS if "reason" in header else Target.OTHER


def _drop_padding(row: Row, named: dict[str, str]) -> None:
    """Remove the zeros that pad a row: they were not measured."""
    if row.target is Target.PHASES:
        # Times are written with six digits, so a bare 0 is none.
        padding = [name for name in row.values if named[name] == "0"]
    else:
        rest = [name for name in row.values if name not in _OF_A_FAILURE]
        padding = rest if failed(row) and all(named[name].strip() in ("0", "") for name in rest) else []
    for name in padding:
        del row.values[name]
        row.padded = True


def failed(row: Row) -> bool:
    """Return whether a row says that nothing was measured: a speedup of 0, or an accuracy other than `pass`."""
    if row.target is Target.ACCURACY:
        return row.first("accuracy") != "pass"
    return row.target is Target.PERFORMANCE and number(row.first("speedup")) == 0


#: A time above this many seconds would be in the year 5138: such a number counts milliseconds.
_MILLISECONDS = 1e11
#: Times up to the year 2255, as a database keeps them.
_END = 9e9
#: Exceptions that reading a damaged record can raise.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def read_records(source: Source, damage: list[str]) -> list[Row]:
    """Return the rows of a file of records. A damaged record is left out and reported in `damage` as `FILE:LINE: ...`.

    Raises `ImportingError` where nothing in it is JSON, and for a bundle.
    """
    rows: list[Row] = []
    unfinished: dict[str, Row] = {}
    for line, record in _objects(source, damage):
        if line == 1 and isinstance(record, dict) and record.get("record") == "run":
            raise ImportingError(f"{source.name} is a bundle: `inductor-watch ingest` takes it")
        try:
            row = _row_of(source, line, plain(record))
        except _UNREADABLE as error:
            damage.append(f"{source.name}:{line}: no benchmark-v3 record ({error_text(error, 120)}): left out")
            continue
        known = unfinished.get(key := _key(row))
        if known is None or not known.values.keys().isdisjoint(row.values):
            rows.append(row)
            unfinished[key] = row
            continue
        known.values |= row.values
        if metrics := row.extra.get("metrics"):
            known.extra.setdefault("metrics", {}).update(metrics)
    return rows


def _objects(source: Source, damage: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield number and content of every record: the number of its line in a file of lines, or of its place in an array."""
    text = source.text.lstrip("\ufeff \t\r\n")
    if not text:
        raise ImportingError(f"{source.name} is empty: nothing to import")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(source, damage)
    else:
        yield from enumerate(whole if isinstance(whole, list) else [whole], start=1)


def _lines(source: Source, damage: list[str]) -> Iterator[tuple[int, Any]]:
    problems: list[str] = []
    read = 0
    for line, content in enumerate(lines_of(source.text), start=1):
        if content.strip("\ufeff \t"):
            try:
                record = json.loads(content.lstrip("\ufeff"))
            except (ValueError, RecursionError) as error:
                problems.append(f"{source.name}:{line}: not JSON ({error_text(error, 120)}): left out")
                continue
            read += 1
            yield line, record
    if not read:
        raise ImportingError(f"{source.name} holds no JSON: {problems[0]}")
    damage += problems


def _row_of(source: Source, line: int, record: Mapping[str, Any]) -> Row:
    """Return the row of one record alone."""
    metric, benchmark, model = record["metric"], record["benchmark"], record["model"]
    name = metric["name"]
    if not isinstance(name, str) or not isinstance(model["name"], str):
        raise TypeError("a name is no text")
    values, is_text = _values(metric)
    if not values:
        raise ValueError(f"metric {name} has no values")
    is_number_as_text = is_text and name not in ("accuracy", "tag") and number(values[0]) is not None
    arguments = dict(benchmark.get("extra_info") or {})
    origins = model.get("origins") or []
    extra = _extra(record)
    if rest := _rest(metric):
        extra["metrics"] = {name: rest}
    return Row(
        source,
        line,
        _target_of(source, arguments, name, is_number_as_text),
        model["name"],
        {name: values},
        device=_text(arguments.get("device")),
        batch_size=whole_number(arguments.get("batch_size")) or None,
        suite=_text(origins[0]) if origins else None,
        mode=_text(benchmark.get("mode")),
        dtype=_text(benchmark.get("dtype")),
        backend=_text(model.get("backend")),
        benchmark=_text(benchmark.get("name")) or "unnamed",
        uploader=_uploader(record),
        arguments=arguments,
        extra=extra,
    )


def _target_of(source: Source, arguments: Mapping[str, Any], metric: str, is_number_as_text: bool) -> Target:
    named = parse_name(source.stem).target
    # compile_times() hands over texts, so the times of the phases are the only numbers that come as texts.
    if named is Target.PHASES or is_number_as_text:
        return Target.PHASES
    for target in (Target.ACCURACY, Target.PERFORMANCE):
        if meant(arguments.get(target.value)) is True:
            return target
    return named or (Target.ACCURACY if metric == "accuracy" else Target.PERFORMANCE)


def _values(metric: Mapping[str, Any]) -> tuple[list[Value], bool]:
    """Return the values, and whether they are texts, which stand in `extra_info`."""
    extra = metric.get("extra_info")
    texts = extra.get("benchmark_values") if isinstance(extra, Mapping) else None
    numbers = metric.get("benchmark_values")
    chosen = texts if not numbers and texts else numbers
    if chosen is None:
        return [], False
    listed = chosen if isinstance(chosen, list) else [chosen]
    return [item if not isinstance(item, list | dict) else json.dumps(item) for item in listed], chosen is texts


def _without(record: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in known}


def _rest(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a metric besides its name and values."""
    extra = metric.get("extra_info")
    extra = _without(extra, "benchmark_values") if isinstance(extra, Mapping) else extra
    rest = _without(metric, "name", "benchmark_values", "extra_info")
    return {**rest, "extra_info": extra} if extra else rest


def _extra(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return every field that no other part of a row holds."""
    rest = _without(record, "benchmark", "model", "metric", *_OF_UPLOADER)
    extra = {key: value for key, value in rest.items() if value is not None}
    if record.get("timestamp") is not None and _moment(record["timestamp"]) is None:
        extra["timestamp"] = record["timestamp"]
    for part, known in (("benchmark", ("name", "mode", "dtype", "extra_info")), ("model", ("name", "backend"))):
        if of_part := _without(record[part], *known):
            extra[part] = of_part
    return extra


#: The uploader's fields that say which run it was; the others are kept with the row.
_OF_UPLOADER = ("repo", "head_branch", "head_sha", "timestamp", "workflow_id", "run_attempt")


def _uploader(record: Mapping[str, Any]) -> Uploader:
    branch = _text(record.get("head_branch"))
    workflow = record.get("workflow_id")
    return Uploader(
        repo=_text(record.get("repo")),
        branch=branch.removeprefix("refs/heads/") if branch else None,
        commit=_text(record.get("head_sha")),
        timestamp=_moment(record.get("timestamp")),
        workflow_id=str(workflow) if workflow not in (None, "", 0) else None,
        run_attempt=whole_number(record.get("run_attempt")),
    )


def _moment(value: Any) -> float | None:
    """Return seconds since 1970 of a record's time, which is seconds, milliseconds, or a text; None for anything else."""
    if (seconds := number(value)) is not None:
        seconds = seconds / 1000 if seconds > _MILLISECONDS else seconds
        return seconds if 0 <= seconds < _END else None
    try:
        return to_epoch(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _key(row: Row) -> str:
    run = row.uploader
    of_cell = (row.target, row.model, row.device, row.batch_size, row.suite, row.mode, row.dtype, row.backend)
    of_run = (run.commit, run.branch, run.workflow_id, run.run_attempt)
    return repr((*of_cell, row.benchmark, of_run, sorted(row.arguments.items(), key=str)))


#: The key, under `benchmark.extra_info` of records by `db.exporter`, of the config as it was requested, as JSON.
REQUEST = "inductor_watch_config"
