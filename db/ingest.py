"""Store bundles. Storing a bundle twice changes nothing, and the states of a bundle may come in any order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, Row, and_, bindparam, delete, insert, or_, select, update

from collector.bundle import first_damage
from collector.metrics import METRICS
from collector.usage_errors import BundleError
from db.connecting import changing
from db.incoming import (
    Incoming,
    IncomingMeasurement,
    branch_key,
    cell_keys,
    commit_key,
    ensure,
    read_incoming,
    record_keys,
    store_code,
)
from db.nights import refresh, unique_night
from db.queries.sides import A_DAY_S
from db.schema import Commit, Evidence, Planned, Run, Samples, Testbed, measurements
from db.store_errors import StoreError, one_line
from db.stored_values import from_epoch


class OtherRunError(StoreError, BundleError):
    """A bundle with the run id of another stored run: it cannot be stored, other bundles can."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The changes made by storing one bundle, as counts of measurements; `planned` counts the cells that the run plans now.

    `damage` has a line for each part of the bundle that could not be read or kept; it is empty for a sound bundle. `secrets`
    lists what was left out since it may be secret (`collector.masking`), `replaced` the measurements on which two bundles of the
    run disagree, with both values. `newer` is the stored run of the branch that started last, if this run is new and started
    before it, and `out_of_order` says so in words. `renamed_night` is the name of its night if another night has the given one.
    """

    run_id: str
    new: int
    updated: int
    unchanged: int
    planned: int
    finished: bool
    changed: bool
    damage: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    newer: str = ""
    out_of_order: str = ""
    renamed_night: str = ""


#: A cell, by the database's number, and a replicate.
_Key = tuple[int, int]


def ingest_bundle(target: Engine | Connection, path: str | Path, *, not_after: float = math.inf) -> IngestReport:
    """Store the run of a bundle: add what is new, and replace a stored measurement only by a later version of it.

    With an engine, this is one transaction; with a connection in a transaction, a savepoint, and the caller commits.
    Raises `BundleError` for a file that is no bundle, of a newer format, or of a run that starts after `not_after` (seconds
    since 1970), which would be the newest one until that time has come; `OtherRunError` where the database holds another
    run of this name (of another branch, commit, testbed or start); `StoreError` where the database cannot be written.
    Nothing is half-written.
    """
    incoming = read_incoming(Path(path))
    if incoming.run["started_at"] > not_after:
        raise BundleError(
            f"{one_line(str(path), 200)} starts in the future, {from_epoch(incoming.run['started_at']):%Y-%m-%d %H:%M} UTC:"
            " correct the clock of the host that measured it and `started_at` in its first line"
        )
    with changing(target) as change:
        report = _store(change.conn, incoming, Path(path).parent)
        change.made = report.changed
        return report


def _store(conn: Connection, incoming: Incoming, folder: Path) -> IngestReport:
    newer = _newer(conn, incoming)
    run, run_changed = _run(conn, incoming)
    store_code(conn, incoming, folder)
    cells = cell_keys(conn, incoming)
    given = {(cells[name], replicate): item for (name, replicate), item in incoming.measurements.items()}
    row = measurements.c
    rows = conn.execute(select(row.cell, row.replicate, row.version, *_told()).where(row.run == run)).all()
    stored = {(cell, replicate): version for cell, replicate, version, *_ in rows}
    new = [key for key in given if key not in stored]
    # Of two measurements of a cell the one with the higher version counts.
    updated = [key for key, item in given.items() if item.row["version"] > stored.get(key, math.inf)]
    replaced = _replaced(incoming, {number: name for name, number in cells.items()}, given, rows)
    if updated:  # with their evidence and samples
        gone = [{"at_cell": cell, "at_replicate": replicate} for cell, replicate in updated]
        at = (row.run == run, row.cell == bindparam("at_cell"), row.replicate == bindparam("at_replicate"))
        conn.execute(delete(measurements).where(*at), gone)
    _insert(conn, run, incoming, {key: given[key] for key in sorted(new + updated)})
    planned = {cells[cell_id] for cell_id in incoming.planned}
    newly_planned = _plan(conn, run, planned, {cell for cell, _ in (*stored, *given)})
    changed = bool(run_changed or newly_planned or new or updated)
    if changed:
        refresh(conn, run)
    of_run = conn.execute(select(Run.planned, Run.finished_at, Run.night).where(Run.id == run)).one()
    is_new_name = run_changed and of_run.night != incoming.run["night"]
    return IngestReport(
        run_id=incoming.run["run_id"],
        new=len(new),
        updated=len(updated),
        unchanged=len(given) - len(new) - len(updated),
        planned=of_run.planned,
        finished=of_run.finished_at is not None,
        changed=changed,
        damage=tuple(first_damage(incoming.damage)),
        secrets=tuple(first_damage(incoming.secrets)),
        replaced=tuple(first_damage(replaced)),
        newer=newer.run_id if newer else "",
        out_of_order=_out_of_order(incoming, newer) if newer else "",
        renamed_night=of_run.night if is_new_name else "",
    )


def _run(conn: Connection, incoming: Incoming) -> tuple[int, bool]:
    """Store the row of a run, and return its number and whether the row changed.

    The row of a stored run changes only if this bundle ranks higher (`_rank`). Raises `OtherRunError` if the database has
    another run of this name.
    """
    known = conn.execute(select(Run).where(Run.run_id == incoming.run["run_id"])).first()
    commit = commit_key(conn, incoming.commit)
    row = {**incoming.run, "night": unique_night(conn, incoming.run, commit)}
    (testbed,) = ensure(conn, Testbed, ("testbed_id",), [incoming.testbed]).values()
    branch_key(conn, incoming.commit["repo"], row["branch"], incoming.branch_start)
    if known is None:
        blank = {"planned": 0, "measured": 0, "statuses": {}}
        conn.execute(insert(Run), {**row, **blank, "commit": commit, "testbed": testbed})
        return conn.execute(select(Run.id).where(Run.run_id == row["run_id"])).scalar_one(), True
    if (known.branch, known.commit, known.testbed) != (row["branch"], commit, testbed):
        sha = conn.execute(select(Commit.sha).where(Commit.id == known.commit)).scalar_one()
        raise OtherRunError(
            f"{one_line(row['bundle'], 200)}: run {one_line(known.run_id)} is already stored for"
            f" {one_line(known.branch)}@{one_line(sha[:12])} on its testbed: another branch, commit or testbed needs a run"
            " id of its own"
        )
    if known.started_at != row["started_at"]:
        raise OtherRunError(
            f"{one_line(row['bundle'], 200)}: a run {one_line(known.run_id)} is already stored that started"
            f" {from_epoch(known.started_at):%Y-%m-%d %H:%M:%S} UTC, this one {from_epoch(row['started_at']):%Y-%m-%d %H:%M:%S}:"
            f" give it a run id of its own, or take the stored one out with `inductor-watch db remove {one_line(known.run_id)}`"
        )
    counts = _rank(row) > _rank(known._asdict())
    if counts:
        conn.execute(update(Run).where(Run.id == known.id).values({name: row[name] for name in _OF_THE_BUNDLE}))
    return known.id, counts


def _newer(conn: Connection, incoming: Incoming) -> Row[str, str, float] | None:
    """Return the stored run that started last on the branch, if the incoming one is new and started before it.

    A run on another testbed counts only if it has the same trigger and started more than a day later: hosts need not end in the
    order in which they began.
    """
    row = incoming.run
    if conn.execute(select(Run.id).where(Run.run_id == row["run_id"])).first() is not None:
        return None
    is_later = or_(
        and_(Testbed.testbed_id == incoming.testbed["testbed_id"], Run.started_at > row["started_at"]),
        and_(Run.trigger == row["trigger"], Run.started_at > row["started_at"] + A_DAY_S),
    )
    later = (Run.branch == row["branch"], Run.night != row["night"], is_later)
    query = select(Run.run_id, Run.night, Run.started_at).join(Testbed, Testbed.id == Run.testbed).where(*later)
    return conn.execute(query.order_by(Run.started_at.desc(), Run.run_id.desc()).limit(1)).first()


def _out_of_order(incoming: Incoming, newer: Row[str, str, float]) -> str:
    started_at = from_epoch(incoming.run["started_at"])
    return (
        f"started {started_at:%Y-%m-%d %H:%M} UTC, before run {one_line(newer.run_id)}, which is stored"
        f" already ({from_epoch(newer.started_at):%Y-%m-%d %H:%M} UTC), so `latest` is not this run; if it was measured"
        " later, the clock of its host is wrong: correct that and `started_at` in the bundle's first line, then"
        f" `inductor-watch db remove {one_line(incoming.run['run_id'])}` and store it again"
    )


def _told() -> list[Column[Any]]:
    """Return the columns by which two measurements of a cell are told apart."""
    return [measurements.c[name] for name in ("status", "started_at", *METRICS)]


def _replaced(
    incoming: Incoming,
    cell_ids: Mapping[int, str],
    given: Mapping[_Key, IncomingMeasurement],
    rows: Iterable[Row[Any]],
) -> list[str]:
    """Return a line for each measurement that differs from the stored one: the stored value, the new one, and which stays.

    Measurements with a lower version than the stored one are skipped.
    """
    lines = []
    for row in rows:
        item = given.get((row.cell, row.replicate))
        if item is None or item.row["version"] < row.version:
            continue
        if differing := [column.name for column in _told() if getattr(row, column.name) != item.row[column.name]]:
            # The start differs whenever a cell was measured again; a value says more.
            name = next((name for name in differing if name != "started_at"), "started_at")
            stays = "; the stored value stays" if item.row["version"] == row.version else ""
            values = f"{_spelled(getattr(row, name))} stored, {_spelled(item.row[name])} in this bundle{stays}"
            lines.append(f"{one_line(str(incoming.cells[cell_ids[row.cell]]), 160)}: {name} {values}")
    return lines


def _spelled(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)


_OF_THE_BUNDLE = (
    *("attempt", "lines", "bundle", "night", "finished_at", "trigger", "label", "tool_version"),
    *("ci_url", "usage"),
)


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the rank of a bundle among the bundles of a run: the facts of the run come from the bundle that ranks highest.

    The latest attempt ranks highest, then the most lines, then a closed bundle. A bundle that names no night has the run's own
    name as its night: a bundle that names one ranks higher.
    """
    return row["attempt"], row["lines"], row["finished_at"] or 0.0, row["night"] != row["run_id"]


def _plan(conn: Connection, run: int, planned: set[int], measured: set[int]) -> bool:
    """Add cells that are neither planned nor measured yet, delete measured ones, and return whether any was added."""
    known = set(conn.execute(select(Planned.cell).where(Planned.run == run)).scalars())
    if done := sorted(known & measured):
        conn.execute(
            delete(Planned).where(Planned.run == run, Planned.cell == bindparam("at")), [{"at": c} for c in done]
        )
    if new := sorted(planned - known - measured):
        conn.execute(insert(Planned), [{"run": run, "cell": cell} for cell in new])
    return bool(new)


def _insert(conn: Connection, run: int, incoming: Incoming, items: Mapping[_Key, IncomingMeasurement]) -> None:
    """Write measurements in the order of the clustered key, so that each page of the tables is written once."""
    programs = record_keys(conn, "program", incoming.programs)
    environments = record_keys(conn, "environment", incoming.environments)
    measured, evidence, samples = [], [], []
    for (cell, replicate), item in items.items():
        place = {"run": run, "cell": cell, "replicate": replicate}
        named = {"program": programs[item.row["program"]], "environment": environments[item.row["environment"]]}
        measured.append({**item.row, **place, **named})
        evidence += [{**place, **item.evidence}] if item.evidence else []
        samples += [{**place, **sample} for sample in item.samples]
    tables: list[tuple[Any, list[dict[str, Any]]]] = [
        (measurements, measured),
        (Evidence, evidence),
        (Samples, samples),
    ]
    for table, rows in tables:
        if rows:
            conn.execute(insert(table), rows)
