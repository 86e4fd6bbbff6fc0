"""Tables of benchmarks/dynamo and their file names.

Rows may be padded with zeros, shorter or longer than their header. PyTorch's nightly names its files
`<backend>_<config>_<suite>_<dtype>_<mode>_<device>_<target>[_<side file>]`, after `test_perf_for_dashboard` in PyTorch's
`.ci/pytorch/test.sh`. Both `timm_models` and the words of a config contain `_`, so the suite's name is the anchor.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from db.importing.rows import ImportingError, Row, Source, Target, Value, number, spelled, whole_number

SUITES = ("torchbench", "huggingface", "timm_models")
_NAME = re.compile(
    r"(?:(?P<config>.*?)_)?(?P<suite>" + "|".join(SUITES) + r"|timm)"
    r"_(?P<dtype>amp|bfloat16|float16|float32|float64|quant|notset)"
    r"_(?P<mode>training|inference)"
    r"(?:_(?P<end>.*))?"
)
_SIDE = re.compile(r"_(compilation_metrics|graph_breaks|graph_break_deduped|stats)(?=$|[-_.])")
_TARGET = re.compile(r"(?:^|[-_])(performance|accuracy)(?=$|[-_.])")
#: No name of a file is longer; a longer text is none of ours.
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
    """The parts of a file's name without its ending; missing parts are None."""
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
#: What PyTorch calls the columns that name a row, first those of its tables, then those of its lists of graph breaks.
_NAMES, _DEVICES, _BATCHES = ("name", "model"), ("dev", "device"), ("batch_size",)
_NAMING = {*_NAMES, *_DEVICES, *_BATCHES}
#: Columns of a row that failed before anything was counted; its other columns are zeros as padding.
_OF_A_FAILURE = {"tag", "speedup", "abs_latency", "accuracy"}
#: Columns that make a line a header rather than a row.
_TELLING = {"speedup", "accuracy", "abs_latency", "batch_size", "reason", "graph_breaks"}


def read_table(source: Source, damage: list[str]) -> list[Row]:
    """The rows of a table. A damaged line is left out and reported in `damage` as `FILE:LINE: ...`.

    Raises `ImportingError` for one that is empty, or has no column with the names of models.
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
        elif row := _row(source, line, header, cells, target):
            rows.append(row)
        else:
            damage.append(f"{source.name}:{line}: no name of a model: left out")
    if not header:
        raise ImportingError(f"{source.name} is empty: nothing to import")
    return rows


def _records(source: Source, damage: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of every line that is not empty; of a field of several lines it is the number of the last one."""
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
    """Column names; a repeated name gets its column's number."""
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
    if len(cells) < len(header):
        row.notes.append(f"{len(header) - len(cells)} columns short of its header")
    return row


def _target(header: Sequence[str]) -> Target:
    if "accuracy" in header:
        return Target.ACCURACY
    if "speedup" in header or "abs_latency" in header:
        return Target.PERFORMANCE
    return Target.BREAKS if "reason" in header else Target.OTHER


def _drop_padding(row: Row, named: dict[str, str]) -> None:
    """Removes the zeros that pad a row: they were not measured."""
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
    """Whether a row says that nothing was measured: a speedup of 0, or an accuracy other than `pass`."""
    if row.target is Target.ACCURACY:
        return row.first("accuracy") != "pass"
    return row.target is Target.PERFORMANCE and number(row.first("speedup")) == 0
