"""Joins a table with the JSON beside it, which has the same rows, so that nothing is doubled and nothing is lost.

The JSON has every digit, every name and the arguments; the table has the batch size and the rows of models that failed.
A table's names can be wrong: its writer replaces a header by a longer one and leaves earlier rows as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from db.importing.merging import SURROUNDINGS, shared_arguments
from db.importing.rows import Row, Value, number

#: A table's numbers are rounded to six digits after the point.
_ROUNDED = 5.01e-7


def join_pairs(rows: Sequence[Row]) -> list[Row]:
    """The rows in their order, with each table's row joined to the JSON's row for it."""
    records: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind.benchmark is not None:
            records[row.source.stem, row.target, row.model].append(row)
    found: list[Row] = []
    joined: set[int] = set()
    for row in rows:
        if row.kind.benchmark is not None:
            continue
        waiting = records.get((row.source.stem, row.target, row.model), [])
        near = sorted(waiting, key=lambda other: other.source.folder != row.source.folder)
        partner = next((other for other in near if id(other) not in joined and _agree(row, other)), None)
        if partner is None:
            found.append(row)
        else:
            joined.add(id(partner))
            _join(partner, row)
    everything = [row for row in rows if row.kind.benchmark is not None] + found
    _inherit(everything)
    # In the order of reading, so that of two rows of one cell the later one counts.
    order = {id(row): index for index, row in enumerate(rows)}
    return sorted(everything, key=lambda row: order[id(row)])


def _agree(table: Row, record: Row) -> bool:
    if table.device and record.device and table.device != record.device:
        return False
    if table.batch_size and record.batch_size and table.batch_size != record.batch_size:
        return False
    return _by_place(table, record) or _by_name(table, record)


def _by_place(table: Row, record: Row) -> bool:
    """Whether the table's fields are the record's values in the same order, whatever the header says."""
    cells = [values[0] for values in table.values.values()]
    told = [values[0] for values in record.values.values() if len(values) == 1]
    return len(cells) >= len(told) > 0 and all(map(_same, cells, told)) and not any(cells[len(told) :])


def _by_name(table: Row, record: Row) -> bool:
    common = [name for name in table.values if name in record.values]
    return bool(common) and all(_same(table.values[name][0], record.values[name][0]) for name in common)


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


def _inherit(rows: Iterable[Row]) -> None:
    """Gives table rows without a record the values on which all records of the same file agree.

    One command writes one file, so a failed model has the flags, the run and the runner of the others.
    """
    beside: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.kind.benchmark is not None:
            beside[row.source.folder, row.source.stem].append(row)
    common = {place: _in_common(found) for place, found in beside.items()}
    for row in rows:
        place = (row.source.folder, row.source.stem)
        if row.kind.benchmark is not None or place not in common:
            continue
        flags, teller = common[place]
        if flags is not None and not row.arguments:
            row.arguments = flags
            row.notes.append("its arguments are those of the other rows of its file")
        if teller is not None and row.told.is_silent:
            row.told = teller.told
            row.extra |= {name: teller.extra[name] for name in SURROUNDINGS if name in teller.extra}


def _in_common(records: Sequence[Row]) -> tuple[dict[str, Any] | None, Row | None]:
    """The flags of all records, and a record that names the run of all; None where the records disagree."""
    first = records[0]
    flags = shared_arguments(first)
    agree = all(shared_arguments(other) == flags for other in records)
    return flags if agree else None, first if len({other.told.commit for other in records}) == 1 else None
