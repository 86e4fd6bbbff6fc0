"""What people and verdicts wrote, from one database to another by public names: it is in no bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from db.changing import changing
from db.connecting import Source, connected
from db.dimensions import branch_key, ensure, testbed_key
from db.errors import RecordError
from db.packing.notes import NoteInfo, notes, put_note
from db.queries.details import cell
from db.regressions.records import list_regressions
from db.schema import CellRow, Commit, ConfigRow, Model, Regression, RegressionEvent, Run, Series, Testbed


@dataclass(frozen=True, slots=True)
class TransferReport:
    """How many records were stored; those that were there already are not counted."""

    regressions: int
    notes: int


def export_records(source: Source) -> dict[str, Any]:
    """Every regression with its history, and every note, as a JSON object; `import_records` reads it back.

    The cells and testbeds of the regressions come along, since a database may never have seen them.
    """
    with connected(source) as conn:
        found = list_regressions(conn)
        beds = conn.execute(select(Testbed.testbed_id, Testbed.data).order_by(Testbed.testbed_id)).all()
        cells = {name: info for name in sorted({item.cell_id for item in found}) if (info := cell(conn, name))}
        used = {item.testbed_id for item in found}
        return {
            "cells": [asdict(info) for info in cells.values()],
            "testbeds": [{"testbed_id": bed.testbed_id, "data": bed.data} for bed in beds if bed.testbed_id in used],
            "regressions": [_plain(asdict(item)) for item in reversed(found)],
            "notes": [_plain(asdict(note)) for note in notes(conn)],
        }


def import_records(target: Engine | Connection, records: Mapping[str, Any]) -> TransferReport:
    """Stores what `export_records` gave; what is there already under its name is left as it is.

    Raises:
        RecordError: that is no such object. Nothing of it is stored.
    """
    with changing(target) as change:
        try:
            cells = _cells(change.conn, records["cells"])
            beds = {bed["testbed_id"]: testbed_key(change.conn, bed) for bed in records["testbeds"]}
            stored = sum(_regression(change.conn, item, cells, beds) for item in records["regressions"])
            written = sum(put_note(change.conn, _note(item)) for item in records["notes"])
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"these are no records of inductor-watch: {type(error).__name__}: {error}") from error
        change.made = bool(stored or written)
        return TransferReport(stored, written)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _note(item: Mapping[str, Any]) -> NoteInfo:
    return NoteInfo(**{**item, "at": datetime.fromisoformat(item["at"])})


def _cells(conn: Connection, cells: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of every cell by `cell_id`; a cell that is new brings its model and config."""
    models = ensure(conn, Model, ("suite", "name"), [{"suite": c["suite"], "name": c["model"]} for c in cells])
    asked = [{"config_id": c["config_id"], "name": c["config"], "request": c["request"]} for c in cells]
    configs = ensure(conn, ConfigRow, ("config_id",), asked)
    same = ("cell_id", "phase", "dtype", "device", "batch_size")
    rows = [
        {name: c[name] for name in same}
        | {"model": models[c["suite"], c["model"]], "config": configs[(c["config_id"],)]}
        for c in cells
    ]
    return {name: number for (name,), number in ensure(conn, CellRow, ("cell_id",), rows).items()}


def _regression(conn: Connection, item: Mapping[str, Any], cells: Mapping[str, int], beds: Mapping[str, int]) -> bool:
    name = select(Regression.id).where(Regression.regression_id == item["regression_id"])
    if conn.execute(name).first() is not None:
        return False
    place = {
        "cell": cells[item["cell_id"]],
        "branch": branch_key(conn, item["repo"], item["branch"]),
        "testbed": beds[item["testbed_id"]],
    }
    series = ensure(conn, Series, tuple(place), [place])[tuple(place.values())]
    same = ("regression_id", "metric", "kind", "state", "base_value", "new_value", "owner", "link")
    row = {column: item[column] for column in same} | {
        "series": series,
        "base_run": _run(conn, item["base_run"]),
        "onset_run": _run(conn, item["onset_run"]),
        "base_commit": _commit(conn, item["repo"], item["base_commit"]),
        "onset_commit": _commit(conn, item["repo"], item["onset_commit"]),
        "opened_at": _moment(item["opened_at"]),
    }
    conn.execute(insert(Regression), row)
    regression = conn.execute(name).scalar_one()
    for event in item["events"]:
        conn.execute(insert(RegressionEvent), {**event, "at": _moment(event["at"]), "regression": regression})
    return True


def _run(conn: Connection, run_id: str | None) -> int | None:
    return conn.execute(select(Run.id).where(Run.run_id == run_id)).scalar()


def _commit(conn: Connection, repo: str, sha: str | None) -> int | None:
    if sha is None:
        return None
    return ensure(conn, Commit, ("repo", "sha"), [{"repo": repo, "sha": sha}])[repo, sha]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
