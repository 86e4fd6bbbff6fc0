"""Names of nights that are unique in a store, whatever people call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, or_, select

from collector.bundle import CONFIRM
from db.queries.moments import from_epoch
from db.schema import Run

#: Runs of one name are of one night if the pause between them is shorter: hosts of a cluster wait for their turn.
_PAUSE_S = 12 * 3600


def unique_night(conn: Connection, run: Mapping[str, Any], commit: int) -> str:
    """Return the name under which the store has the night of a run: its own, or with a start if another night has that.

    `run` is the row to be stored, `commit` its number. Runs of one name are of one night if branch and commit agree and no
    long pause lies between them; what confirms a night (`CONFIRM`) may do so on a later day. A stored night keeps its name, so
    that addresses stay valid.
    """
    name = run["night"]
    if name == run["run_id"]:
        return str(name)
    columns = (Run.run_id, Run.night, Run.branch, Run.commit, Run.started_at, Run.finished_at)
    stored = conn.execute(select(*columns).where(called(Run.night, name))).all()
    for other in stored:
        if other.run_id == run["run_id"]:
            return str(other.night)
    begin, end = _span(run["started_at"], run["finished_at"])
    for other in stored:
        other_begin, other_end = _span(other.started_at, other.finished_at)
        is_near = other_begin - end < _PAUSE_S and begin - other_end < _PAUSE_S
        is_near |= run["trigger"] == CONFIRM
        if is_near and (other.branch, other.commit) == (run["branch"], commit):
            return str(other.night)
    if not any(other.night == name for other in stored):
        return str(name)
    return f"{name}@{from_epoch(begin):%Y%m%d-%H%M%S}"


def called(night: SQLColumnExpression[str], name: str) -> ColumnElement[bool]:
    """The condition that people gave a stored night this name."""
    return or_(night == name, night.startswith(f"{name}@", autoescape=True))


def _span(started_at: float, finished_at: float | None) -> tuple[float, float]:
    """Return when a run began and ended; one that is open has just begun."""
    return started_at, max(started_at, finished_at or 0.0)
