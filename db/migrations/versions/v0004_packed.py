"""Few rows for many: what histories and comparisons read is packed by run and model, and a run's sums by run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_STATUSES = (
    *("pass", "fail_accuracy", "nondeterministic", "fail_to_compile", "fail_to_run", "eager_fail", "oom", "timeout"),
    *("crashed", "config_error", "unavailable", "model_fail_to_load", "skipped"),
)
_METRICS = ("speedup", "compiled_ms", "compiled_kernel_ms", "compile_cold_s")
_GEOMEANS = ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression")
_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")
_SUMMED = (
    *_COUNTS,
    *(f"n_{name}" for name in (*_GEOMEANS, "compile_cold_s")),
    *(f"ln_{name}" for name in _GEOMEANS),
    "sum_compile_cold_s",
)
#: Cell, program, replicate and status, then the metrics; the second where a number does not fit into the first.
_CELL = {1: struct.Struct("<IHBB4d"), 2: struct.Struct("<IIIB4d")}
_GROUP = struct.Struct("<12I6d")
_CELLS, _GROUPS = 24, 20
#: The lowest number of a cell in each group of a run.
_FIRST_CELLS = """
    SELECT MIN(c.id), m.suite, c.phase, c.dtype, c.device, c.config
    FROM (SELECT cell FROM planned WHERE run = :run UNION SELECT cell FROM measurements WHERE run = :run) e
    JOIN cells c ON c.id = e.cell JOIN models m ON m.id = c.model
    GROUP BY m.suite, c.phase, c.dtype, c.device, c.config
"""


def upgrade() -> None:
    _tables()
    conn = op.get_bind()
    if conn.dialect.name == "sqlite":
        op.drop_index("ix_measurements_history", "measurements")
    for run in conn.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        if cells := list(_cells(conn, run)):
            conn.execute(
                sa.text("INSERT INTO packed_cells (model, run, part, data) VALUES (:model, :run, :part, :data)"), cells
            )
        if sums := list(_sums(conn, run)):
            conn.execute(sa.text("INSERT INTO packed_sums (run, part, data) VALUES (:run, :part, :data)"), sums)


def _tables() -> None:
    op.create_table(
        "packed_cells",
        sa.Column("model", sa.Integer(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "run", "part", name="pk_packed_cells"),
        sa.ForeignKeyConstraint(["model"], ["models.id"], name="fk_packed_cells_model"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_packed_cells_run", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_packed_cells_run", "packed_cells", ["run"])
    op.create_table(
        "packed_sums",
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run", "part", name="pk_packed_sums"),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_packed_sums_run", ondelete="CASCADE"),
    )


def _cells(conn: sa.Connection, run: int) -> Iterator[dict[str, Any]]:
    """As `db.packing.packed` of this version packs them."""
    columns = ", ".join(f"r.{name}" for name in ("cell", "replicate", "status", "program", *_METRICS))
    query = f"SELECT c.model, {columns} FROM measurements r JOIN cells c ON c.id = r.cell WHERE r.run = :run"  # noqa: S608 -- our own words
    rows = sorted(conn.execute(sa.text(query), {"run": run}).all(), key=lambda row: tuple(row[:3]))
    for model, found in groupby(rows, key=lambda row: row[0]):
        own = list(found)
        for part, start in enumerate(range(0, len(own), _CELLS)):
            yield {"model": model, "run": run, "part": part, "data": _packed(own[start : start + _CELLS])}


def _packed(rows: list[Any]) -> bytes:
    number = 1 if all((row[4] or 0) < 2**16 and row[2] < 2**8 for row in rows) else 2
    return bytes([number]) + b"".join(
        _CELL[number].pack(
            cell,
            program or 0,
            replicate,
            _STATUSES.index(status),
            *(float("nan") if value is None else value for value in metrics),
        )
        for _, cell, replicate, status, program, *metrics in rows
    )


def _sums(conn: sa.Connection, run: int) -> Iterator[dict[str, Any]]:
    groups = {tuple(group): cell for cell, *group in conn.execute(sa.text(_FIRST_CELLS), {"run": run})}
    query = f"SELECT suite, phase, dtype, device, config, {', '.join(_SUMMED)} FROM summaries WHERE run = :run"  # noqa: S608 -- our own words
    found = sorted((groups[tuple(row[:5])], *row[5:]) for row in conn.execute(sa.text(query), {"run": run}))
    for part, start in enumerate(range(0, len(found), _GROUPS)):
        data = b"\x01" + b"".join(_GROUP.pack(*values) for values in found[start : start + _GROUPS])
        yield {"run": run, "part": part, "data": data}


def downgrade() -> None:
    """Nothing is lost: both tables repeat what others hold."""
    op.drop_table("packed_sums")
    op.drop_table("packed_cells")
    if op.get_bind().dialect.name == "sqlite":
        columns = ["cell", "run", "replicate", "status", "program", *_METRICS]
        op.create_index("ix_measurements_history", "measurements", columns)
