"""A run's counts and sums, rebuilt from its rows whenever ingest changed one of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from collector.vocabulary import NOT_APPLICABLE, Status
from db.packing.packed import metrics_of_run
from db.packing.packed_sums import packed_sums, write_sums
from db.schema import CellRow, Model, Planned, Run, Summary, measurements

_GEOMEANS = ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression")
_MEANS = ("compile_cold_s",)

GroupKey = tuple[str, str, str, str, int]


def refresh(conn: Connection, run: int) -> None:
    """Writes the summary rows of a run, their packed form, and the counts in its own row."""
    rows, counts, packed = computed(conn, run)
    write_sums(conn, run, packed)
    conn.execute(delete(Summary).where(Summary.run == run))
    if rows:
        conn.execute(insert(Summary), rows)
    conn.execute(update(Run).where(Run.id == run).values(counts))


def computed(conn: Connection, run: int) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """As a run's measurements and its plan make them: its summary rows, the counts in its own row, its packed sums."""
    expected = _expected(conn, run)
    counted = _counted(conn, run)
    rows = [_summary(run, group, cells, counted) for group, cells in expected.items()]
    statuses = Counter(row["status"] for row in counted.values())
    counts = {"planned": sum(map(len, expected.values())), "measured": len(counted), "statuses": dict(statuses)}
    return rows, counts, packed_sums(run, rows, [min(cells) for cells in expected.values()])


def _expected(conn: Connection, run: int) -> dict[GroupKey, set[int]]:
    """The cells that the run planned or measured, by group."""
    axes = (Model.suite, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.config)
    base = select(CellRow.id, *axes).join(Model, Model.id == CellRow.model)
    planned = base.join(Planned, Planned.cell == CellRow.id).where(Planned.run == run)
    measured = base.join(measurements, measurements.c.cell == CellRow.id).where(measurements.c.run == run)
    groups: dict[GroupKey, set[int]] = defaultdict(set)
    for cell, *group in (*conn.execute(planned), *conn.execute(measured)):
        groups[tuple(group)].add(cell)
    return groups


def _counted(conn: Connection, run: int) -> dict[int, dict[str, Any]]:
    """By cell the status and metrics of the measurement that counts: of several replicates the one that started last."""
    metrics = metrics_of_run(conn, run, (*_GEOMEANS, *_MEANS))
    columns = measurements.c
    query = select(columns.cell, columns.replicate, columns.status).where(columns.run == run)
    return {
        cell: {"status": status, **metrics.get((cell, replicate), {})}
        for cell, replicate, status in conn.execute(query.order_by(columns.started_at, columns.replicate))
    }


def _summary(run: int, group: GroupKey, cells: set[int], counted: dict[int, dict[str, Any]]) -> dict[str, Any]:
    rows = [counted[cell] for cell in sorted(cells) if cell in counted]
    passing = [row for row in rows if row["status"] == Status.PASS]
    not_applicable = sum(row["status"] in NOT_APPLICABLE for row in rows)
    found: dict[str, Any] = {
        "run": run,
        **dict(zip(("suite", "phase", "dtype", "device", "config"), group, strict=True)),
        "planned": len(cells),
        "measured": len(rows),
        "passed": len(passing),
        "failed": len(rows) - len(passing) - not_applicable,
        "not_applicable": not_applicable,
    }
    for name in _GEOMEANS:
        logs = [math.log(value) for row in passing if (value := row.get(name)) is not None and value > 0]
        found |= {f"n_{name}": len(logs), f"ln_{name}": math.fsum(logs)}
    for name in _MEANS:
        values = [value for row in passing if (value := row.get(name)) is not None]
        found |= {f"n_{name}": len(values), f"sum_{name}": math.fsum(values)}
    return found
