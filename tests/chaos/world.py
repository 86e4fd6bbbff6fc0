"""What the chaos tests share: processes that can be killed, bundles, and checks of a store against an undisturbed one."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from db.engine import open_store
from db.ingest import ingest_bundle
from db.nights import list_runs
from db.store_errors import StoreError
from jobs import cli as program
from tests.db.answers import answers
from tests.factories import COMMIT_B, CUDAGRAPHS, DEFAULT, failing, header, matrix, new_store, passing, write_bundle

#: `make chaos` sets it to a seed: each test then tries often. Without it each tries a few times, always in the same way.
SEED = os.environ.get("INDUCTOR_WATCH_CHAOS", "")
CELLS = matrix(("bert", "gpt2"), (DEFAULT, CUDAGRAPHS))
_FORK, _numbers = multiprocessing.get_context("fork"), itertools.count()


@pytest.fixture
def rng(request):
    """Random numbers that depend on the seed and the test alone."""
    return random.Random(f"{SEED}/{request.node.name}")


def tries(often, few):
    """How often to try: `often` for `make chaos`, else `few`."""
    return range(often if SEED else few)


@dataclass(frozen=True, slots=True)
class Done:
    """How a process ended: its exit code (negative: the signal), what it printed, and after how many seconds."""

    code: int
    out: str
    err: str
    seconds: float

    def check_one_line(self, *codes):
        """It succeeded, or failed with one of the codes and one line that is no internal error."""
        assert self.code in (0, *codes), self
        assert not any(word in self.err for word in ("Traceback", "internal error")), self
        is_line = len(self.err.splitlines()) == 1 and self.err.startswith("inductor-watch: ")
        assert self.code in (0, 3) or is_line, self


class Child:
    """A forked process that runs the command line, or `work`. Its output is in files, which outlive a kill."""

    def __init__(self, folder, *words, work=None):
        self.files = [folder / f"child{next(_numbers)}.{name}" for name in ("out", "err")]
        for path in self.files:
            path.touch()
        self._process = _FORK.Process(target=_live, args=(self.files, list(map(str, words)), work))
        self._began = time.monotonic()
        self._process.start()

    def end(self, kill_after_s=None):
        """Waits for its end, or kills it after so many seconds."""
        self._process.join(kill_after_s)
        seconds = time.monotonic() - self._began
        if kill_after_s is not None:
            self._process.kill()
        self._process.join()
        return Done(self._process.exitcode, *(path.read_text(errors="replace") for path in self.files), seconds)


def _live(files, words, work):
    for path, stream in zip(files, (1, 2), strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115 - a test runner's
    sys.argv = ["inductor-watch", *words]
    try:
        work() if work else program.main()
    except Exception as error:
        sys.exit(program.report_error(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def cli(folder, *words):
    return Child(folder, *words).end()


def three_runs(folder, rounds=9):
    """A night, a later one in which a cell failed, and one that was interrupted."""
    second = [passing(item, minutes=61, seed=1, slower=1.1, rounds=rounds) for item in CELLS[1:]]
    third = [passing(item, minutes=121, seed=2, rounds=rounds) for item in CELLS[:2]]
    return [
        write_bundle(folder, header("r0"), [passing(item, rounds=rounds) for item in CELLS]),
        write_bundle(folder, header("r1", minutes=60, commit=COMMIT_B), [*second, failing(CELLS[0], minutes=62)]),
        write_bundle(folder, header("r2", minutes=120), third, planned=CELLS, closed=False),
    ]


class Reference:
    """Bundles, the answers of an undisturbed store of them, and the measurements of each run."""

    def __init__(self, folder, bundles):
        self.bundles, self.path = bundles, folder / "reference.db"
        engine = new_store(self.path)
        for bundle in bundles:
            ingest_bundle(engine, bundle)
        self.answers = answers(engine)
        self.measured = {run.run_id: run.measured for run in list_runs(engine)}
        engine.dispose()

    def check_partial(self, store, done):
        """Each run is whole or absent, and each run of which the command said that it is stored is there."""
        # A line that was cut by a kill promises nothing.
        lines = [line for line in done.out.splitlines(True) if line.endswith("\n")]
        promised = {run for run in self.measured if any(f": run {run}: " in line for line in lines)}
        try:
            engine = open_store(store, write=False)
        except StoreError as error:
            assert not promised, error
            assert any(words in str(error) for words in ("no database here", "is empty", "older than this")), error
            return
        found = {run.run_id: run.measured for run in list_runs(engine)}
        engine.dispose()
        assert promised <= set(found)
        assert found.items() <= self.measured.items()
        check_sound(store)

    def check(self, store):
        engine = open_store(store, write=False)
        found = answers(engine)
        engine.dispose()
        assert found == self.answers
        check_sound(store)


def check_sound(store):
    """A SQLite file passes its integrity check; a server looks after its own."""
    if "://" not in store:
        with closing(sqlite3.connect(store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def fresh(folder, data=None):
    """The path of a SQLite file without side files, with these bytes or not there."""
    path = folder / "store.db"
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)
    return str(path)


def stores(folder, kind, request):
    """New stores without end: of PostgreSQL, or SQLite files of which every other one does not exist yet."""
    for number in itertools.count():
        if kind == "postgres":
            yield request.getfixturevalue("postgres").migrated()
        else:
            path = fresh(folder)
            if number % 2:
                new_store(Path(path)).dispose()
            yield path
