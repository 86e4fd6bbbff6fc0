"""Metrics leave their columns: what is packed holds all of them, once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

#: As the columns stood, and the metrics that stay in `packed_cells`.
_ALL = (
    *("eager_ms", "compiled_ms", "speedup", "eager_kernel_ms", "compiled_kernel_ms", "device_speedup"),
    *(
        "compile_cold_s",
        "eager_peak_bytes",
        "compiled_peak_bytes",
        "compression",
        "graphs",
        "graph_breaks",
        "recompiles",
    ),
    *("cudagraph_skips", "cudagraph_partitions", "kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
)
_FIRST = ("speedup", "compiled_ms", "compiled_kernel_ms", "compile_cold_s")
_OTHERS = (
    *("eager_ms", "eager_kernel_ms", "device_speedup", "eager_peak_bytes", "compiled_peak_bytes", "compression"),
    *("graphs", "graph_breaks", "recompiles", "cudagraph_skips", "cudagraph_partitions"),
    *("kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
)
_QUOTIENTS = {
    "device_speedup": ("eager_kernel_ms", "compiled_kernel_ms"),
    "compression": ("eager_peak_bytes", "compiled_peak_bytes"),
}
#: Cell, program, replicate and status, then the first metrics: `packed_cells` by the number of its format.
_CELL = {1: struct.Struct("<IHBB4d"), 2: struct.Struct("<IIIB4d")}
_ABSENT, _QUOTIENT, _EQUAL, _BYTES, _SHORTS, _LONGS, _SECTORS, _DOUBLES = range(8)
_LETTERS = {_EQUAL: "d", _BYTES: "B", _SHORTS: "H", _LONGS: "I", _SECTORS: "I", _DOUBLES: "d"}
_WHOLE = {_BYTES: (1, 2**8 - 1), _SHORTS: (1, 2**16 - 1), _LONGS: (1, 2**32 - 1), _SECTORS: (512, 2**32 - 1)}

_Values = list[float | None]
_Columns = dict[str, _Values]


def upgrade() -> None:
    op.create_table(
        "packed_metrics",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("model", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run", "model", "part", name="pk_packed_metrics"),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name="fk_packed_metrics_model"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_packed_metrics_run", ondelete="CASCADE"),
    )
    op.create_index("ix_packed_metrics_model", "packed_metrics", ["model"])
    conn = op.get_bind()
    for run in conn.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        if rows := list(_packed(conn, run)):
            conn.execute(
                sa.text("INSERT INTO packed_metrics (run, model, part, data) VALUES (:run, :model, :part, :data)"), rows
            )
    # Columns are dropped, the table is not made anew: SQLite would delete all that refers to it.
    for name in _ALL:
        op.drop_column("measurements", name)
    if conn.dialect.name == "postgresql":
        # Writes the rows anew, without the columns: dropping alone leaves their bytes where they are.
        op.execute("ALTER TABLE measurements ALTER COLUMN wall_s TYPE double precision USING (wall_s + 0)")


def _packed(conn: sa.Connection, run: int) -> Iterator[dict[str, Any]]:
    """As `db.packing.packed_metrics` of this version packs what the columns hold, a row for each of `packed_cells`."""
    query = f"SELECT cell, replicate, {', '.join(_ALL)} FROM measurements WHERE run = :run"  # noqa: S608 -- our own words
    measured = {tuple(row[:2]): row[2:] for row in conn.execute(sa.text(query), {"run": run})}
    for model, part, keys in _records(conn, run):
        values = [measured[key] for key in keys]
        columns = {name: list(column) for name, column in zip(_ALL, zip(*values, strict=True), strict=True)}
        yield {"run": run, "model": model, "part": part, "data": _pack(columns)}


def _records(conn: sa.Connection, run: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Model and part of each row of `packed_cells`, and of its records cell and replicate."""
    for model, part, data in _rows(conn, "packed_cells", run):
        yield model, part, [(record[0], record[2]) for record in _CELL[data[0]].iter_unpack(data[1:])]


def _rows(conn: sa.Connection, table: str, run: int) -> list[tuple[int, int, bytes]]:
    query = sa.text(f"SELECT model, part, data FROM {table} WHERE run = :run")  # noqa: S608 -- our own words
    return [(model, part, bytes(data)) for model, part, data in conn.execute(query, {"run": run})]


def _pack(columns: _Columns) -> bytes:
    kept = [_kept(name, columns) for name in _OTHERS]
    head = bytes([1, len(columns["speedup"]), len(kept), *(way for way, _ in kept)])
    return head + b"".join(data for _, data in kept)


def _kept(name: str, columns: _Columns) -> tuple[int, bytes]:
    values = columns[name]
    there = [value for value in values if value is not None]
    if not there:
        return _ABSENT, b""
    if name in _QUOTIENTS and _same(_divided(columns, name, columns.__getitem__), values):
        return _QUOTIENT, b""
    way = _narrowest(there)
    letter = _LETTERS[way]
    if struct.calcsize(f"<{letter}") * len(values) > 8 and _same([values[0]] * len(values), values):
        return _EQUAL, struct.pack("<d", there[0])
    if way == _DOUBLES:
        return way, struct.pack(f"<{len(values)}d", *(float("nan") if value is None else value for value in values))
    step, none = _WHOLE[way]
    return way, struct.pack(
        f"<{len(values)}{letter}", *(none if value is None else int(value) // step for value in values)
    )


def _narrowest(there: Sequence[float]) -> int:
    if any(struct.pack(">d", value)[0] & 0x80 for value in there):
        return _DOUBLES
    for way, (step, none) in _WHOLE.items():
        if max(there) < none * step and all(value % step == 0 for value in there):
            return way
    return _DOUBLES


def _same(one: _Values, other: _Values) -> bool:
    def bits(values: _Values) -> list[bytes | None]:
        return [None if value is None else struct.pack("<d", value) for value in values]

    return bits(one) == bits(other)


def _divided(columns: Mapping[str, Any], name: str, column: Callable[[str], _Values]) -> _Values:
    over, under = (column(part) for part in _QUOTIENTS[name])
    return [_quotient(one, other) for one, other in zip(over, under, strict=True)]


def _quotient(over: float | None, under: float | None) -> float | None:
    """As IEEE 754 divides; None for no number."""
    if over is None or under is None or (over == 0 and under == 0):
        return None
    try:
        return over / under
    except ZeroDivisionError:
        return float("inf")  # which is in no column: it is like no value


def downgrade() -> None:
    """Nothing is lost: the values go back to columns of their own."""
    conn = op.get_bind()
    for name in _ALL:
        op.add_column("measurements", sa.Column(name, sa.Double(), nullable=True))
    names = ", ".join(f"{name} = :{name}" for name in _ALL)
    back = sa.text(
        f"UPDATE measurements SET {names} WHERE run = :run AND cell = :cell AND replicate = :replicate"  # noqa: S608 -- our own words
    )
    for run in conn.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        if rows := list(_measured(conn, run)):
            conn.execute(back, rows)
    op.drop_table("packed_metrics")


def _measured(conn: sa.Connection, run: int) -> Iterator[dict[str, Any]]:
    others = {(model, part): data for model, part, data in _rows(conn, "packed_metrics", run)}
    for model, part, data in _rows(conn, "packed_cells", run):
        records = list(_CELL[data[0]].iter_unpack(data[1:]))
        columns: _Columns = {
            name: [None if record[4 + place] != record[4 + place] else record[4 + place] for record in records]
            for place, name in enumerate(_FIRST)
        }
        columns |= _unpack(others[model, part], columns)
        for place, record in enumerate(records):
            values = {name: columns[name][place] for name in _ALL}
            yield {"run": run, "cell": record[0], "replicate": record[2], **values}


def _unpack(data: bytes, known: _Columns) -> _Columns:
    count, width = data[1], data[2]
    found, at = dict(known), 3 + width
    # A later version of the format may have columns that this one has not: those come last.
    ways = dict(zip(_OTHERS, data[3 : 3 + width], strict=False))
    for name in _OTHERS:
        way = ways.get(name, _ABSENT)
        if way in _LETTERS:
            several = 1 if way == _EQUAL else count
            values: _Values = list(struct.unpack_from(f"<{several}{_LETTERS[way]}", data, at))
            at += struct.calcsize(f"<{several}{_LETTERS[way]}")
            found[name] = _numbers(way, values, count)
        elif way == _ABSENT:
            found[name] = [None] * count
    for name in (name for name in _OTHERS if ways.get(name) == _QUOTIENT):
        found[name] = _divided(found, name, found.__getitem__)
    return found


def _numbers(way: int, values: Sequence[Any], count: int) -> _Values:
    if way == _EQUAL:
        return [values[0]] * count
    if way == _DOUBLES:
        return [None if value != value else value for value in values]
    step, none = _WHOLE[way]
    return [None if value == none else float(value * step) for value in values]
