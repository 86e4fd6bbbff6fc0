"""benchmark-v3 records, a JSON object a line or an array of them, gathered to rows.

A record has one metric of one model. Records that agree in everything else are one row. Where a metric comes again, the
model was measured again and a new row begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from db.importing.rows import (
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
    whole_number,
)
from db.importing.tables import parse_name
from db.queries.moments import to_epoch
from db.texts import error_text

#: A time above this many seconds would be in the year 5138: such a number counts milliseconds.
_MILLISECONDS = 1e11
#: Times up to the year 2255, as a database keeps them.
_END = 9e9
#: What reading a record that is none can raise.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def read_records(source: Source, damage: list[str]) -> list[Row]:
    """The rows of a file of records. A damaged record is left out and reported in `damage` as `FILE:LINE: ...`.

    Raises `ImportingError` where nothing in it is JSON, and for a bundle.
    """
    rows: list[Row] = []
    unfinished: dict[str, Row] = {}
    for line, record in _records(source, damage):
        if line == 1 and isinstance(record, dict) and record.get("record") == "run":
            raise ImportingError(f"{source.name} is a bundle: `inductor-watch ingest` takes it")
        try:
            row = _row(source, line, plain(record))
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


def _records(source: Source, damage: list[str]) -> Iterator[tuple[int, Any]]:
    """Number and content of every record: of its line in a file of lines, of its place in an array."""
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


def _row(source: Source, line: int, record: Mapping[str, Any]) -> Row:
    """The row of one record alone."""
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
        _target(source, arguments, name, is_number_as_text),
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


def _target(source: Source, arguments: Mapping[str, Any], metric: str, is_number_as_text: bool) -> Target:
    named = parse_name(source.stem).target
    # compile_times() hands over texts, so the times of the phases are the only numbers that come as such.
    if named is Target.PHASES or is_number_as_text:
        return Target.PHASES
    for target in (Target.ACCURACY, Target.PERFORMANCE):
        if meant(arguments.get(target.value)) is True:
            return target
    return named or (Target.ACCURACY if metric == "accuracy" else Target.PERFORMANCE)


def _values(metric: Mapping[str, Any]) -> tuple[list[Value], bool]:
    """The values, and whether they are texts: those stand in `extra_info`."""
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
    """What a metric says besides its name and values."""
    extra = metric.get("extra_info")
    extra = _without(extra, "benchmark_values") if isinstance(extra, Mapping) else extra
    rest = _without(metric, "name", "benchmark_values", "extra_info")
    return {**rest, "extra_info": extra} if extra else rest


def _extra(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every field that no other part of a row holds."""
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
    """Seconds since 1970 of what a record calls its time: seconds, milliseconds, or a text; None for anything else."""
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


#: Under `benchmark.extra_info` of what `db.exporting` writes: the config as it was asked for, as JSON.
REQUEST = "inductor_watch_config"
