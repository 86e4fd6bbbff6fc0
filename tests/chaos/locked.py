"""Another process holds the write lock, for longer or for shorter than an ingest waits."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from tests.chaos import material
from tests.chaos.processes import Child, cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import new_store

#: Seconds that the ingest waits here; a store's own patience is in `db/engine.py`.
_PATIENCE_S = 0.5
_LONG_S, _SHORT_S = 30.0, 0.2


def run(setting: Setting) -> Tally:
    """Half of the holders outlast the patience: one line, exit code 4, nothing changed; readers are served meanwhile."""
    tally = Tally("locked database")
    reference = material.make_reference(setting.folder)
    path = setting.folder / "locked.db"
    for number in range(setting.amount(20, 2)):
        material.remove_store(path)
        new_store(path).dispose()
        _try(setting, tally, path, reference, is_long=number % 2 == 0)
        setting.meddle_store(str(path))
        material.check_answers(tally, str(path), reference, "once the lock was gone")
    return tally


def _try(setting: Setting, tally: Tally, path: Path, reference: material.Reference, *, is_long: bool) -> None:
    words = ("ingest", *reference.words, "--db", str(path))
    holder = _hold(setting.folder, path, _LONG_S if is_long else _SHORT_S)
    done = cli(setting.folder, *words, patience_s=_PATIENCE_S if is_long else 30)
    tally.tries += 1
    if done.is_unforeseen:
        tally.trace(done.err)
    elif is_long:
        tally.hits["lock outlasted the patience"] += 1
        if done.code != 4 or not done.is_one_line or "another program is writing" not in done.err:
            tally.err(f"exit code {done.code}, {done.err!r} on a locked database")
        if (reading := cli(setting.folder, "runs", "--json", "--db", str(path))).out.strip() != "[]":
            tally.err(f"a reader beside the lock: {reading.code} {reading.err} {reading.out[:80]}")
        holder.kill_at(0)
        if (again := cli(setting.folder, *words)).code != 0:
            tally.err(f"ingest once the lock was gone: {again.err}")
    else:
        tally.hits["patience outlasted the lock"] += 1
        holder.wait()
        if done.code != 0:
            tally.err(f"exit code {done.code} though the lock was short: {done.err}")
    holder.forget()


def _hold(folder: Path, path: Path, seconds: float) -> Child:
    """A process that has the lock when this returns."""
    child = Child(folder, lambda child: _keep(child, path, seconds))
    deadline = time.monotonic() + 20
    while "holding" not in child.marks():
        if time.monotonic() > deadline:
            raise TimeoutError("the lock was never taken")
        time.sleep(0.01)
    return child


def _keep(child: Child, path: Path, seconds: float) -> int:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    child.mark("holding")
    time.sleep(seconds)
    connection.execute("COMMIT")
    return 0
