"""Processes that can be killed for little: forked from one that has imported everything, with files for what they say."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

ROOT = Path(__file__).resolve().parents[2]
#: What a fork must not import again; the command line loads its verbs late.
_WARM = (
    "jobs.cli",
    "jobs.options",
    "jobs.output.comparison",
    "db.engine",
    "db.ingest",
    "analysis.compare.tables",
    "db.queries.cells",
)
_VERBS = ("ingest", "db", "runs", "compare", "import_")
_UNFORESEEN = 70
_WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: exit code (negative: the signal), what it printed."""

    code: int
    out: str
    err: str

    @property
    def is_one_line(self) -> bool:
        """Whether it ended well, or with one line of words that is no internal error."""
        lines = self.err.splitlines()
        return self.code == 0 or (
            len(lines) == 1 and lines[0].startswith("inductor-watch: ") and not self.is_unforeseen
        )

    @property
    def is_unforeseen(self) -> bool:
        """Whether it died of something nobody had thought of."""
        words = ("Traceback (most recent call last)", "internal error")
        return self.code < 0 or self.code == _UNFORESEEN or any(word in self.err for word in words)


class Child:
    """A forked process. What it prints goes to files, which outlive a kill; so do the marks that it sets."""

    def __init__(self, folder: Path, work: Callable[[Child], int]) -> None:
        number = next(_numbers)
        self._out, self._err, self._marks = (folder / f"child{number}.{name}" for name in ("out", "err", "marks"))
        for path in (self._out, self._err, self._marks):
            path.touch()
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(work)

    def _live(self, work: Callable[[Child], int]) -> None:
        code = _UNFORESEEN
        try:
            for path, stream in ((self._out, 1), (self._err, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
            # Those of a test runner would not lead to the files.
            sys.stdout, sys.stderr = (open(stream, "w", closefd=False) for stream in (1, 2))  # noqa: SIM115
            self._to = os.open(self._marks, os.O_WRONLY | os.O_APPEND)
            code = work(self)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def mark(self, word: str) -> None:
        """In the child: says that something has happened."""
        os.write(self._to, word.encode() + b"\n")

    def marks(self) -> list[str]:
        """In the parent: all that the child has marked."""
        return self._marks.read_text().splitlines()

    def printed(self) -> str:
        """In the parent: what it has printed so far."""
        return self._out.read_text(errors="replace")

    def kill_at(self, seconds: float) -> bool:
        """Kills it so long after its start; False if it had ended by itself. Waits for its end."""
        left = self.began + seconds - time.monotonic()
        if left > 0:
            time.sleep(left)
        os.kill(self.pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
        return self.wait().code == -signal.SIGKILL

    def wait(self) -> Done:
        """Waits for its end."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return Done(code, self.printed(), self._err.read_text(errors="replace"))

    def forget(self) -> None:
        """Removes its files."""
        for path in (self._out, self._err, self._marks):
            path.unlink(missing_ok=True)


def warm_up() -> None:
    """Imports what children need, once."""
    for name in (*_WARM, *(f"jobs.commands.{verb}" for verb in _VERBS)):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)


def start_cli(folder: Path, *words: str, patience_s: float | None = None) -> Child:
    """The command line in a fork, with marks about its transactions."""
    return Child(folder, lambda child: _cli(child, words, patience_s))


def cli(folder: Path, *words: str, patience_s: float | None = None) -> Done:
    """The command line in a fork, to its end."""
    child = start_cli(folder, *words, patience_s=patience_s)
    done = child.wait()
    child.forget()
    return done


def fresh_cli(*words: str, **environ: str) -> Done:
    """The command line in an interpreter of its own, as a user starts it: slower, for a sample of each fault."""
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli", *words], cwd=ROOT, env={**os.environ, **environ}, capture_output=True
    )
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _cli(child: Child, words: Sequence[str], patience_s: float | None) -> int:
    import db.engine
    from jobs import cli as program

    mark_transactions(child)
    if patience_s is not None:
        db.engine._PATIENCE_S = patience_s  # type: ignore[assignment]
    os.environ.pop("INDUCTOR_WATCH_TRACEBACK", None)
    sys.argv = ["inductor-watch", *words]
    try:
        program.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def mark_transactions(child: Child) -> None:
    """Marks the first write of each transaction, the moment before its commit, and the moment after."""
    state = {"writing": False}

    def statement(_conn: object, _cursor: object, text: str, *_: object) -> None:
        if not state["writing"] and text.lstrip().upper().startswith(_WRITES):
            state["writing"] = True
            child.mark("writes")

    def commit(_conn: object) -> None:
        if state["writing"]:
            child.mark("commits")

    def back(*_: object) -> None:
        if state["writing"]:
            state["writing"] = False
            child.mark("committed")

    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", commit)
    event.listen(Pool, "checkin", back)


AFTER_THE_END = "(came after the end)"

#: Where a kill struck, by the last mark before it.
STRUCK: Mapping[str, str] = {
    "": "before a write",
    "writes": "in a transaction",
    "commits": "in a commit",
    "committed": "between or after",
}


def struck(child: Child, killed: bool) -> str:
    """Where in its work a child was when it was killed; a kill that came after its end is none."""
    if not killed:
        return AFTER_THE_END
    return STRUCK.get((child.marks() or [""])[-1], "elsewhere")


def usual_duration(start: Callable[[], Child], tries: int = 3) -> float:
    """Seconds from start to end of an undisturbed run, the median of a few."""
    found = []
    for _ in range(tries):
        child = start()
        done = child.wait()
        found.append(time.monotonic() - child.began)
        assert done.code == 0, done.err
        child.forget()
    return sorted(found)[len(found) // 2]
