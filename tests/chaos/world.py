"""What the chaos tests share: processes that can be killed, bundles, and checks of a store against an undisturbed one."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.runs import list_runs
from tests.db.answers import answers
from tests.factories import CUDAGRAPHS, DEFAULT, failing, header, matrix, new_store, passing, write_bundle

#: `make chaos` sets it to a seed: each test then tries often. Without it each tries a few times, always in the same way.
SEED = os.environ.get("INDUCTOR_WATCH_CHAOS", "")
CELLS = matrix(("bert", "gpt2"), (DEFAULT, CUDAGRAPHS))
_FORK, _numbers = multiprocessing.get_context("fork"), itertools.count()


def tries(often: int, few: int) -> range:
    """How often to try: `often` for `make chaos`, else `few`."""
    return range(often if SEED else few)


class Child:
    """A forked process that runs the command line, or `work`. Its output is in files, which outlive a kill."""

    def __init__(self, folder: Path, *words: object, work: Callable[[], object] | None = None) -> None:
        self._files = [folder / f"child{next(_numbers)}.{name}" for name in ("out", "err")]
        for path in self._files:
            path.touch()
        self._process = _FORK.Process(target=_live, args=(self._files, list(map(str, words)), work))
        self.began = time.monotonic()
        self._process.start()

    def kill_after(self, seconds: float) -> Done:
        """Kills it after so many seconds, unless it has ended before."""
        self._process.join(seconds)
        self._process.kill()
        return self.wait()

    def wait(self) -> Done:
        """Waits for its end."""
        self._process.join()
        self.seconds = time.monotonic() - self.began
        return Done(int(self._process.exitcode or 0), *(path.read_text(errors="replace") for path in self._files))

    def wait_for(self, word: str) -> None:
        """Waits until it has printed a word."""
        while word not in self._files[0].read_text():
            assert self._process.is_alive()
            time.sleep(0.01)


def _live(files: list[Path], words: list[str], work: Callable[[], object] | None) -> None:
    from jobs import cli

    for path, stream in zip(files, (1, 2), strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115 - a test runner's
    os.environ.pop("INDUCTOR_WATCH_TRACEBACK", None)
    sys.argv = ["inductor-watch", *words]
    try:
        work() if work else cli.main()
    except Exception as error:
        sys.exit(cli.report_error(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Done:
    """How a process ended: its exit code (negative: the signal) and what it printed."""

    code: int
    out: str
    err: str

    def check_one_line(self, *codes: int) -> None:
        """It succeeded, or failed with one of the codes and one line that is no internal error."""
        assert self.code in (0, *codes), self
        assert not any(word in self.err for word in ("Traceback", "internal error")), self.err
        assert self.code in (0, 3) or (len(self.err.splitlines()) == 1 and self.err.startswith("inductor-watch: ")), (
            self
        )


def cli(folder: Path, *words: object) -> Done:
    """The command line in a fork, to its end."""
    return Child(folder, *words).wait()


def usual_s(start: Callable[[], Child]) -> float:
    """Seconds that an undisturbed process takes: the shorter of two."""
    children = []
    for _ in range(2):
        children.append(start())
        done = children[-1].wait()
        assert done.code == 0, done.err
    return min(child.seconds for child in children)


def three_runs(folder: Path, rounds: int = 9) -> list[Path]:
    """A night, a later one in which a cell failed, and one that was interrupted."""
    second = [passing(item, minutes=61, seed=1, slower=1.1, rounds=rounds) for item in CELLS[1:]]
    second.append(failing(CELLS[0], minutes=62))
    third = [passing(item, minutes=121, seed=2, rounds=rounds) for item in CELLS[:2]]
    return [
        write_bundle(folder, header("r0"), [passing(item, rounds=rounds) for item in CELLS]),
        write_bundle(folder, header("r1", minutes=60, commit="b2" * 20), second),
        write_bundle(folder, header("r2", minutes=120), third, planned=CELLS, closed=False),
    ]


class Reference:
    """Bundles, the answers of an undisturbed store of them, and the measurements of each run."""

    def __init__(self, folder: Path, bundles: list[Path]) -> None:
        self.bundles, self.path = bundles, folder / "reference.db"
        engine = new_store(self.path)
        for bundle in bundles:
            ingest_bundle(engine, bundle)
        self.answers: dict[str, Any] = answers(engine)
        self.measured = {run.run_id: run.measured for run in list_runs(engine)}
        engine.dispose()

    def check_partial(self, store: str, done: Done) -> None:
        """Each run is whole or absent, and each run of which the command said that it is stored is there."""
        promised = {run for run in self.measured for line in done.out.splitlines(True) if _tells(line, run)}
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
        assert_sound(store)

    def check(self, store: str) -> None:
        """The store answers as the undisturbed one does."""
        engine = open_store(store, write=False)
        try:
            assert answers(engine) == self.answers
        finally:
            engine.dispose()
        assert_sound(store)


def _tells(line: str, run: str) -> bool:
    return f": run {run}: " in line and line.endswith("\n")  # a line cut by a kill promises nothing


def is_sound(path: str | Path) -> bool:
    """Whether SQLite finds nothing wrong with a file."""
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("PRAGMA integrity_check")] == ["ok"]
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()


def assert_sound(store: str) -> None:
    """A SQLite file passes its integrity check; a server looks after its own."""
    assert "://" in store or is_sound(store)


def fresh(folder: Path, data: bytes | None = None) -> Path:
    """The path of a SQLite file without side files, with these bytes or not there."""
    path = folder / "store.db"
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if data is not None:
        path.write_bytes(data)
    return path


def stores(folder: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """New stores without end: of PostgreSQL, or SQLite files of which every other one does not exist yet."""
    for number in itertools.count():
        if kind == "postgres":
            yield request.getfixturevalue("postgres").migrated()
            continue
        path = fresh(folder)
        if number % 2:
            new_store(path).dispose()
        yield str(path)
