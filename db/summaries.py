"""A run's counts and averages: ingest computes them again whenever it changed a row of the run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from collector.vocabulary import NOT_APPLICABLE, Status
from db.schema import GEOMEANS, MEANS, CellRow, Model, Planned, Run, measurements, summaries

#: What a group is made of; `config` is the database's number.
GROUP = ("suite", "phase", "dtype", "device", "config")
_AXES = (Model.suite, CellRow.phase, CellRow.dtype, CellRow.device, CellRow.config)


def refresh(conn: Connection, run: int) -> None:
    """Writes the summaries of a run and the counts in its own row."""
    rows, counts = computed(conn, run)
    conn.execute(delete(summaries).where(summaries.c.run == run))
    if rows:
        conn.execute(insert(summaries), rows)
    conn.execute(update(Run).where(Run.id == run).values(counts))


def computed(conn: Connection, run: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The summaries of a run and the counts in its own row, from its plan and its measurements.

    Of several replicates of a cell the one that started last counts.
    """
    row = measurements.c
    query = select(CellRow.id, *_AXES).join(Model, Model.id == CellRow.model)
    planned = query.join(Planned, Planned.cell == CellRow.id).where(Planned.run == run)
    measured = query.add_columns(row.status, row.code_id, *(row[name] for name in (*GEOMEANS, *MEANS)))
    measured = measured.join(measurements, row.cell == CellRow.id).where(row.run == run)
    groups: dict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
    for cell, *group in conn.execute(planned):
        groups[tuple(group)][cell] = None
    for measurement in conn.execute(measured.order_by(row.started_at, row.replicate)):
        groups[tuple(measurement[1:6])][measurement.id] = measurement
    rows = [
        {"run": run, **dict(zip(GROUP, group, strict=True)), **_summary(list(cells.values()))}
        for group, cells in groups.items()
    ]
    statuses = Counter(
        measurement.status for cells in groups.values() for measurement in cells.values() if measurement is not None
    )
    counts = {"planned": sum(map(len, groups.values())), "measured": statuses.total(), "statuses": dict(statuses)}
    return rows, counts


def _summary(cells: Sequence[Any]) -> dict[str, Any]:
    measured = [row for row in cells if row is not None]
    passing = [row for row in measured if row.status == Status.PASS]
    not_applicable = sum(row.status in NOT_APPLICABLE for row in measured)
    summary: dict[str, Any] = {
        "planned": len(cells),
        "measured": len(measured),
        "passed": len(passing),
        "failed": len(measured) - len(passing) - not_applicable,
        "not_applicable": not_applicable,
    }
    # Cells that were not timed again, since their code is known, still belong to the average: without them it is another one.
    untimed = [row for row in passing if row.code_id is not None and row.compiled_ms is None]
    is_whole = {name: all(getattr(row, name) is not None for row in untimed) for name in (*GEOMEANS, *MEANS)}
    for name in (*GEOMEANS, *MEANS):
        values = [value for row in passing if is_whole[name] and (value := getattr(row, name)) is not None]
        if name in GEOMEANS:
            values = [math.log(value) for value in values if value > 0]
        mean = math.fsum(values) / len(values) if values else None
        summary |= {f"n_{name}": len(values), name: math.exp(mean) if mean is not None and name in GEOMEANS else mean}
    return summary
