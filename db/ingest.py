"""Stores bundles. The same bundle twice changes nothing, and the order in which states of a bundle come does not matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, delete, insert, select, update

from collector.bundle import BundleError, first_damage
from db.connecting import changing
from db.dimensions import branch_key, cell_keys, commit_key, ensure, record_keys
from db.errors import StoreError, one_line
from db.generated_code import store_code
from db.incoming import Incoming, IncomingMeasurement, read_incoming
from db.queries.moments import from_epoch
from db.schema import Commit, Evidence, Planned, Run, Samples, Testbed, measurements
from db.summaries import refresh


class OtherRunError(StoreError, BundleError):
    """The database has another run of this name: this bundle cannot be stored, others can."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one bundle changed. The counts are of measurements; `planned` counts the cells that the run plans now.

    `damage` lists what of the bundle could not be read or kept, a line each; it is empty for a sound bundle. `secrets` lists
    what was left out since it may be secret (`collector.masking`).
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


#: A cell, by the database's number, and a replicate.
_Key = tuple[int, int]


def ingest_bundle(target: Engine | Connection, path: str | Path, *, not_after: float = math.inf) -> IngestReport:
    """Stores the run of a bundle; what is there already is left alone, what is new is added.

    An engine is given a transaction of its own; in a connection that has one, a savepoint is used and the caller commits.
    Raises `BundleError` for a file that is no bundle, of a newer format, or of a run that starts after `not_after` (seconds
    since 1970), which would be the newest one until that time has come; `OtherRunError` where the database holds another
    run of this name; `StoreError` where the database cannot be written. Nothing is half-written.
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
    run, run_changed = _run(conn, incoming)
    store_code(conn, incoming, folder)
    cells = cell_keys(conn, incoming)
    given = {(cells[name], replicate): item for (name, replicate), item in incoming.measurements.items()}
    row = measurements.c
    rows = conn.execute(select(row.cell, row.replicate, row.version).where(row.run == run))
    stored = {(cell, replicate): version for cell, replicate, version in rows}
    new = [key for key in given if key not in stored]
    # Of two measurements of a cell the one with the higher version counts.
    updated = [key for key, item in given.items() if item.row["version"] > stored.get(key, math.inf)]
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
    of_run = conn.execute(select(Run.planned, Run.finished_at).where(Run.id == run)).one()
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
    )


def _run(conn: Connection, incoming: Incoming) -> tuple[int, bool]:
    """The run's number, and whether its row changed."""
    row = incoming.run
    known = conn.execute(select(Run).where(Run.run_id == row["run_id"])).first()
    commit = commit_key(conn, incoming.commit)
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
    counts = _rank(row) > _rank(known._asdict())
    if counts:
        conn.execute(update(Run).where(Run.id == known.id).values({name: row[name] for name in _OF_THE_BUNDLE}))
    return known.id, counts


_OF_THE_BUNDLE = (
    *("attempt", "lines", "bundle", "night", "started_at", "finished_at", "trigger", "label", "tool_version"),
    "ci_url",
)


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which of two bundles of a run tells its facts: the one with most lines of the latest attempt, and rather a closed one.

    A bundle that names no night has the run's own name as its night: one that names it counts.
    """
    return row["attempt"], row["lines"], row["finished_at"] or 0.0, row["night"] != row["run_id"]


def _plan(conn: Connection, run: int, planned: set[int], measured: set[int]) -> bool:
    """Adds what is neither planned nor measured yet, and drops what is measured now; says whether anything was added."""
    known = set(conn.execute(select(Planned.cell).where(Planned.run == run)).scalars())
    if done := sorted(known & measured):
        conn.execute(
            delete(Planned).where(Planned.run == run, Planned.cell == bindparam("at")), [{"at": c} for c in done]
        )
    if new := sorted(planned - known - measured):
        conn.execute(insert(Planned), [{"run": run, "cell": cell} for cell in new])
    return bool(new)


def _insert(conn: Connection, run: int, incoming: Incoming, items: Mapping[_Key, IncomingMeasurement]) -> None:
    """Writes measurements in the order of the clustered key, so that each page of the tables is written once."""
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
