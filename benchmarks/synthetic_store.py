"""A store full of synthetic nights, to measure how fast a full one answers: see `synthetic_nights`.

`fill` writes old nights straight into the tables and the newest ones as bundles through ingest; both come from the same
`Night`, and a test holds the two ways against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, Table, insert, select, update

from benchmarks.synthetic_nights import REPO, TESTBED, WORD, Night, Shape, World, environment_of, options_of
from collector.vocabulary import short_hash
from db.dimensions import branch_key, cell_keys, environment_keys, program_keys, testbed_key
from db.incoming import Incoming, version_of
from db.ingest import ingest_bundle
from db.schema import Commit, Meta, Planned, Run, measurements
from db.summaries import refresh


def fill(engine: Engine, shape: Shape | None = None, seed: int = 1) -> World:
    """Fills an empty store, open for writing; the same shape and seed give the same store. Returns what it was made of.

    A store that holds runs is refused: nothing synthetic is mixed with what was measured.
    """
    world = World(shape or Shape(), seed)
    shape = world.shape
    with engine.begin() as conn:
        if conn.execute(select(Run.id).limit(1)).first():
            raise ValueError("this store holds runs: fill a new one")
        conn.execute(insert(Commit), world.commits)
        branch_key(conn, REPO, WORD)
        numbers = _Numbers(conn, world)
    direct = max(0, shape.commits - shape.sampled)
    for start in range(0, direct, 50):
        with engine.begin() as conn:
            for number in range(start, min(start + 50, direct)):
                _store(conn, numbers, world.night(number))
            conn.execute(update(Meta).where(Meta.key == "revision").values(value=str(min(start + 50, direct))))
    with TemporaryDirectory() as folder:
        for number in range(direct, shape.commits):
            ingest_bundle(engine, world.night(number).write(Path(folder), samples=True))
    settle(engine)
    return world


def settle(engine: Engine) -> None:
    """Statistics for the planner and, on PostgreSQL, the map that index-only reads need: what autovacuum does in time."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("ANALYZE" if engine.dialect.name == "sqlite" else "VACUUM ANALYZE")


class _Numbers:
    """The database's own numbers for what nights share."""

    def __init__(self, conn: Connection, world: World) -> None:
        """Stores what is not there yet."""
        cells = {cell.cell_id: cell for cell in world.cells}
        found = cell_keys(conn, Incoming({}, {}, {}, None, cells=cells))
        self.cells = np.array([found[cell_id] for cell_id in cells])
        self.testbed = testbed_key(conn, {"testbed_id": short_hash(TESTBED), "data": TESTBED})
        self.commits = {row.sha: row.id for row in conn.execute(select(Commit.sha, Commit.id))}
        self.programs: dict[str | None, int | None] = {}


def _store(conn: Connection, numbers: _Numbers, night: Night) -> None:
    header, keys = night.header, numbers.cells
    if missing := set(night.programs) - numbers.programs.keys():
        numbers.programs |= program_keys(conn, {name: options_of(name) for name in sorted(missing)})
    programs = numbers.programs
    environment = environment_keys(conn, {night.environment_id: environment_of(night.number)})[night.environment_id]
    row = {
        **{name: getattr(header, name) for name in ("run_id", "branch", "trigger", "label", "attempt", "tool_version")},
        **{"commit": numbers.commits[header.commit], "testbed": numbers.testbed, "night": header.run_id, "ci_url": ""},
        **{"started_at": night.began_at, "finished_at": night.finished_at},
        **{"bundle": f"{header.run_id}.jsonl.gz", "lines": int(night.is_measured.sum())},
        **{"planned": 0, "measured": 0, "statuses": {}},
    }
    conn.execute(insert(Run), row)
    run = conn.execute(select(Run.id).where(Run.run_id == header.run_id)).scalar_one()
    gaps = sorted(keys[~night.is_measured].tolist())
    _copy(conn, Planned.__table__, ("run", "cell"), [(run, key) for key in gaps])
    names, columns = _columns(night, run, keys, [programs[name] for name in night.programs], environment)
    order = np.flatnonzero(night.is_measured)
    order = order[np.argsort(keys[order])].tolist()
    rows = list(zip(*columns, strict=True))
    _copy(conn, measurements, names, [rows[place] for place in order])
    refresh(conn, run)


def _columns(
    night: Night, run: int, keys: NDArray[np.int64], programs: list[int | None], environment: int | None
) -> tuple[list[str], list[Sequence[Any]]]:
    """The columns of `measurements` with their values, an entry a planned cell."""
    count = len(keys)
    failures = night.outcomes
    found: dict[str, Sequence[Any]] = {
        "run": [run] * count,
        "cell": keys.tolist(),
        "replicate": [0] * count,
        "status": [status.value for status, _ in failures],
        "program": programs,
        "environment": [environment] * count,
        "started_at": night.started_at.tolist(),
        "wall_s": night.wall_s.tolist(),
        **{
            name: [failure and getattr(failure, name) for _, failure in failures]
            for name in ("exception", "message", "hint")
        },
        "stage": [failure and failure.stage.value for _, failure in failures],
        "version": [version_of(1, line) for line in night.lines().tolist()],
        **{name: [None if x != x else x for x in values.tolist()] for name, values in night.metrics.items()},
    }
    return list(found), list(found.values())


def _copy(conn: Connection, table: Table | Any, names: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Many rows at once, the way that each database is quickest at."""
    quoted = ", ".join(f'"{name}"' for name in names)
    if conn.dialect.name == "postgresql":
        driver: Any = conn.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} ({quoted}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    elif rows:
        places = ", ".join("?" * len(names))
        conn.exec_driver_sql(f"INSERT INTO {table.name} ({quoted}) VALUES ({places})", rows)
