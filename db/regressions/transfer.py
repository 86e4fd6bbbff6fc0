"""Copies the records of regressions to another database by their public names: no bundle has them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from db.dimensions import branch_key, ensure, testbed_key
from db.queries.details import CellInfo, cell
from db.regressions.records import RegressionInfo, list_regressions
from db.schema import CellRow, Commit, ConfigRow, Model, Regression, RegressionEvent, Run, Series, Testbed

#: What is stored as `RegressionInfo` gives it.
_SAME = ("regression_id", "metric", "kind", "state", "base_value", "new_value", "owner", "link")


def copy_records(source: Connection, conn: Connection) -> int:
    """Copies every regression with its history; returns how many were new.

    The cells and testbeds of the regressions come along, since the new database may not have them. A record that is there
    already under its name is left as it is.
    """
    copied = 0
    testbeds = {bed.testbed_id: bed.data for bed in source.execute(select(Testbed.testbed_id, Testbed.data))}
    for info in reversed(list_regressions(source)):
        known = select(Regression.id).where(Regression.regression_id == info.regression_id)
        info_of_cell = cell(source, info.cell_id)
        if info_of_cell is None or conn.execute(known).first() is not None:
            continue
        place = {
            "cell": _cell(conn, info_of_cell),
            "branch": branch_key(conn, info.repo, info.branch),
            "testbed": testbed_key(conn, {"testbed_id": info.testbed_id, "data": testbeds[info.testbed_id]}),
        }
        _copy(conn, info, ensure(conn, Series, tuple(place), [place])[tuple(place.values())])
        copied += 1
    return copied


def _copy(conn: Connection, info: RegressionInfo, series: int) -> None:
    row: dict[str, Any] = {name: getattr(info, name) for name in _SAME} | {
        "series": series,
        "base_run": _run(conn, info.base_run),
        "onset_run": _run(conn, info.onset_run),
        "base_commit": _commit(conn, info.repo, info.base_commit),
        "onset_commit": _commit(conn, info.repo, info.onset_commit),
        "opened_at": info.opened_at.timestamp(),
    }
    conn.execute(insert(Regression), row)
    number = conn.execute(select(Regression.id).where(Regression.regression_id == info.regression_id)).scalar_one()
    for event in info.events:
        row = {"regression": number, "at": event.at.timestamp(), "author": event.author, "text": event.text}
        row |= {"from_state": event.from_state, "to_state": event.to_state}
        conn.execute(insert(RegressionEvent), row)


def _cell(conn: Connection, info: CellInfo) -> int:
    """The number of a cell; one that is new brings its model and config."""
    model = {"suite": info.suite, "name": info.model}
    config = {"config_id": info.config_id, "name": info.config, "request": info.request}
    row = {name: getattr(info, name) for name in ("cell_id", "phase", "dtype", "device", "batch_size")}
    row["model"] = ensure(conn, Model, ("suite", "name"), [model])[info.suite, info.model]
    row["config"] = ensure(conn, ConfigRow, ("config_id",), [config])[(info.config_id,)]
    return ensure(conn, CellRow, ("cell_id",), [row])[(info.cell_id,)]


def _run(conn: Connection, run_id: str | None) -> int | None:
    return conn.execute(select(Run.id).where(Run.run_id == run_id)).scalar()


def _commit(conn: Connection, repo: str, sha: str | None) -> int | None:
    if sha is None:
        return None
    return ensure(conn, Commit, ("repo", "sha"), [{"repo": repo, "sha": sha}])[repo, sha]
