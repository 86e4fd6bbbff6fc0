"""Joins a table with the JSON beside it, which has the same rows, so that nothing is doubled and nothing is lost.

The JSON has every digit, every name and the arguments; the table has the batch size and the rows of models that failed.
A table's names can be wrong: its writer replaces a header by a longer one and leaves earlier rows as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from db.importing.merging import SURROUNDINGS, shared_arguments
from db.importing.rows import Row, Value, number

#: A table's numbers are rounded to six digits after the point.
_ROUNDED = 5.01e-7


def join_pairs(rows: Sequence[Row]) -> list[Row]:
    """The rows in their order, with each table's row joined to the JSON's row for it."""
    records: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.benchmark is not None:
            records[row.source.stem, row.target, row.model].append(row)
    joined: set[int] = set()
    for row in rows:
        if row.benchmark is not None:
            continue
        waiting = records.get((row.source.stem, row.target, row.model), [])
        near = sorted(waiting, key=lambda other: other.source.folder != row.source.folder)
        partner = next((other for other in near if id(other) not in joined and _agree(row, other)), None)
        if partner is not None:
            joined |= {id(partner), id(row)}
            _join(partner, row)
    kept = [row for row in rows if row.benchmark is not None or id(row) not in joined]
    _inherit(kept)
    return kept


def _agree(table: Row, record: Row) -> bool:
    if table.device and record.device and table.device != record.device:
        return False
    if table.batch_size and record.batch_size and table.batch_size != record.batch_size:
        return False
    common = [name for name in table.values if name in record.values]
    by_name = bool(common) and all(_same(table.values[name][0], record.values[name][0]) for name in common)
    return _by_place(table, record) or by_name


def _by_place(table: Row, record: Row) -> bool:
    """Whether the table's fields are the record's values in the same order, whatever the header says."""
    fields = [values[0] for values in table.values.values()]
    exact = [values[0] for values in record.values.values() if len(values) == 1]
    return len(fields) >= len(exact) > 0 and all(map(_same, fields, exact)) and not any(fields[len(exact) :])


def _same(rounded: Value, exact: Value) -> bool:
    one, other = number(rounded), number(exact)
    if one is None or other is None:
        return str(rounded) == str(exact)
    return abs(one - other) <= _ROUNDED + 1e-12 * abs(other)


def _join(record: Row, table: Row) -> None:
    """Adds to a record the values that only the table has."""
    record.batch_size = record.batch_size or table.batch_size
    record.device = record.device or table.device
    record.notes += [f"also {table.place}", *table.notes]
    record.padded |= table.padded
    if _by_place(table, record):
        if [*table.values][: len(record.values)] != [*record.values]:
            record.notes.append("the table's header is another row's: names are those of the JSON")
        return
    record.surplus |= {name: values[0] for name, values in table.values.items() if name not in record.values}


def _inherit(rows: Sequence[Row]) -> None:
    """Gives table rows without a record the values on which all records of the same file agree.

    One command writes one file, so a failed model has the flags, the run and the runner of the others.
    """
    by_file: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.benchmark is not None:
            by_file[row.source.folder, row.source.stem].append(row)
    common = {file: _in_common(records) for file, records in by_file.items()}
    for row in rows:
        file = (row.source.folder, row.source.stem)
        if row.benchmark is not None or file not in common:
            continue
        arguments, of_run = common[file]
        if arguments is not None and not row.arguments:
            row.arguments = arguments
            row.notes.append("its arguments are those of the other rows of its file")
        if of_run is not None and row.uploader.is_silent:
            row.uploader = of_run.uploader
            row.extra |= {name: of_run.extra[name] for name in SURROUNDINGS if name in of_run.extra}


def _in_common(records: Sequence[Row]) -> tuple[dict[str, Any] | None, Row | None]:
    """The arguments of all records, and a record that names the run of all; None where the records disagree."""
    first = records[0]
    arguments = shared_arguments(first)
    agree = all(shared_arguments(other) == arguments for other in records)
    one_run = len({other.uploader.commit for other in records}) == 1
    return arguments if agree else None, first if one_run else None
