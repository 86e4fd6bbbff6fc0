"""Names that repositories give their commits; and beside the metrics why the GPU was held back, from the details."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_REASONS = ("power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")
#: Cell, program, replicate and status, then the first metrics: `packed_cells` by the number of its format.
_CELL = {1: struct.Struct("<IHBB4d"), 2: struct.Struct("<IIIB4d")}
#: Format, entries and columns, then a byte a column; the new column comes after so many.
_HEAD, _BEFORE = 3, 18
#: Columns that every row has.
_ALWAYS = 15
_ABSENT, _EQUAL, _BYTES, _NONE = 0, 2, 3, 255


def upgrade() -> None:
    op.create_table(
        "tags",
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("repo", "name", name="pk_tags"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tags_name", "tags", ["name"])
    op.create_index("ix_tags_sha", "tags", ["sha"])
    conn = op.get_bind()
    for run in conn.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        if told := _told(conn, run):
            _write(conn, run, _longer(conn, run, told))


def downgrade() -> None:
    """What was packed of details goes; the details stay."""
    conn = op.get_bind()
    for run in conn.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        _write(conn, run, _shorter(conn, run))
    op.drop_table("tags")


def _told(conn: sa.Connection, run: int) -> dict[tuple[int, int], int]:
    """By cell and replicate the sum of the reasons that held after the timed rounds, where somebody looked."""
    query = sa.text("SELECT cell, replicate, details FROM evidence WHERE run = :run AND details IS NOT NULL")
    found = ((cell, replicate, _throttled(details)) for cell, replicate, details in conn.execute(query, {"run": run}))
    return {(cell, replicate): value for cell, replicate, value in found if value is not None}


def _throttled(packed: bytes) -> int | None:
    try:
        details = json.loads(zlib.decompress(bytes(packed)))
    except (zlib.error, ValueError):
        return None  # `db check` says so
    for name in ("surroundings", "after", "clocks_held_by"):
        details = details.get(name) if isinstance(details, Mapping) else None
    if not isinstance(details, list):
        return None
    return sum(1 << place for place, name in enumerate(_REASONS) if name in details)


def _longer(conn: sa.Connection, run: int, told: Mapping[tuple[int, int], int]) -> Iterator[dict[str, Any]]:
    """The rows of which somebody looked at a GPU, with their new column."""
    keys = {
        (model, part): [(record[0], record[2]) for record in _CELL[data[0]].iter_unpack(data[1:])]
        for model, part, data in _rows(conn, "packed_cells", run)
    }
    for model, part, data in _rows(conn, "packed_metrics", run):
        values = [told.get(key, _NONE) for key in keys[model, part]]
        if data[2] <= _BEFORE and set(values) != {_NONE}:
            yield {"run": run, "model": model, "part": part, "data": _with(data, values)}


def _shorter(conn: sa.Connection, run: int) -> Iterator[dict[str, Any]]:
    for model, part, data in _rows(conn, "packed_metrics", run):
        if data[2] > _BEFORE:
            yield {"run": run, "model": model, "part": part, "data": _without(data)}


def _with(data: bytes, values: Sequence[int]) -> bytes:
    """A row with a column more, as `db.packing.packed_metrics` of this version packs it; the greatest byte stands for none."""
    way, column = _BYTES, bytes(values)
    if len(values) > 8 and len(set(values)) == 1:
        way, column = _EQUAL, struct.pack("<d", values[0])
    ways, rest = data[_HEAD : _HEAD + data[2]], data[_HEAD + data[2] :]
    absent = bytes([_ABSENT] * (_BEFORE - data[2]))
    return data[:2] + bytes([_BEFORE + 1]) + ways + absent + bytes([way]) + rest + column


def _without(data: bytes) -> bytes:
    """A row without that column, and without the end of those before it that are not there, as the older version packs it."""
    ways, rest = data[_HEAD : _HEAD + _BEFORE], data[_HEAD + data[2] :]
    size = {_ABSENT: 0, _EQUAL: 8}.get(data[_HEAD + _BEFORE], data[1])
    while len(ways) > _ALWAYS and ways[-1] == _ABSENT:
        ways = ways[:-1]
    return data[:2] + bytes([len(ways)]) + ways + rest[: len(rest) - size]


def _rows(conn: sa.Connection, table: str, run: int) -> list[tuple[int, int, bytes]]:
    query = sa.text(f"SELECT model, part, data FROM {table} WHERE run = :run")  # noqa: S608 -- our own words
    return [(model, part, bytes(data)) for model, part, data in conn.execute(query, {"run": run})]


def _write(conn: sa.Connection, run: int, rows: Iterable[dict[str, Any]]) -> None:
    if found := list(rows):
        where = "run = :run AND model = :model AND part = :part"
        conn.execute(sa.text(f"UPDATE packed_metrics SET data = :data WHERE {where}"), found)  # noqa: S608 -- as above
