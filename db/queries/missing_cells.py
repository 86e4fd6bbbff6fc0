"""Cells that a night planned and that none of its runs measured or planned: a run of their own holds them.

Such a run has planned cells and nothing else, so that a shard that never arrived shows as missing and not as absent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, Select, delete, func, select

from db.connecting import Source, changing, connected
from db.errors import StoreError, one_line
from db.runs import RunInfo, list_nights
from db.schema import CellRow, Planned, Run, measurements


@dataclass(frozen=True, slots=True)
class TakenOn:
    """The runs of a night, newest first, and the `cell_id` of every cell that one of them planned or measured."""

    runs: tuple[RunInfo, ...]
    cells: frozenset[str]


def taken_on(source: Source, night: str, besides: str) -> TakenOn:
    """What the runs of a night took on, `besides` (a run id) left out; nothing where the night is not known."""
    with connected(source) as conn:
        runs = [run for of_night in list_nights(conn) if of_night.night == night for run in of_night.runs]
        chosen = tuple(run for run in runs if run.run_id != besides)
        keys = select(Run.id).where(Run.run_id.in_([run.run_id for run in chosen]))
        return TakenOn(chosen, frozenset(_cells(conn, keys)))


def drop_promises(target: Engine | Connection, run_id: str, unless: Collection[str]) -> bool:
    """Removes a run that is nothing but promises, unless these `cell_id` are what it promises; says whether it did.

    Raises `StoreError` where the run has measurements, or the database cannot be written.
    """
    with changing(target) as change:
        key = change.conn.execute(select(Run.id).where(Run.run_id == run_id)).scalar()
        if key is None:
            return False
        count = select(func.count()).select_from(measurements).where(measurements.c.run == key)
        if change.conn.execute(count).scalar_one():
            raise StoreError(f"run {one_line(run_id)} has measurements: it is no list of what never arrived, and stays")
        if _cells(change.conn, select(Run.id).where(Run.id == key)) == set(unless):
            return False
        change.conn.execute(delete(Run).where(Run.id == key))
        change.made = True
        return True


def _cells(conn: Connection, runs: Select[int]) -> set[str]:
    cell_ids: set[str] = set()
    for column, run in ((Planned.cell, Planned.run), (measurements.c.cell, measurements.c.run)):
        query = select(CellRow.cell_id).join_from(CellRow, column.table, CellRow.id == column)
        cell_ids.update(conn.execute(query.where(run.in_(runs))).scalars())
    return cell_ids
