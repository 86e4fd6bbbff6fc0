"""Kills real runs at random: the runner, one of its workers, or all of them as if the host had died."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from collector.vocabulary import Cell
from tests.collector.processes import ROOT, children

#: Every process of a run carries it in its environment, with the storm's own token.
_VARIABLE = "INDUCTOR_WATCH_TEST_STORM"
KINDS = ("runner", "worker", "host")
#: How a run ends when the process was killed that it asks what this machine is.
_FATAL = "torch does not start here"
_MEASURED = b'{"record":"measurement"'


def write_plan(folder: Path, cells: Sequence[Cell]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"cells": [cell.to_json() for cell in cells]}))
    return path


class Storm:
    """A night on a host where something is killed every few seconds, and someone who resumes it each time."""

    def __init__(
        self, folder: Path, cells: list[Cell], seed: int, longest_s: float, words: Sequence[str] = (), **environ: str
    ) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self._words, self._environ = words or ("--workers", "2", "--samples", "5"), environ
        self.kills: Counter[str] = Counter()
        self._plan, self._rng, self._longest_s = write_plan(folder, cells), random.Random(seed), longest_s
        self._token = secrets.token_hex(8)
        self._tmp = folder / "tmp"
        self._tmp.mkdir()

    def rage(self, kills: int, amid_cells: bool = False) -> None:
        """Goes on until that many kills have happened; a run that comes to its end is followed by another.

        With `amid_cells` nothing is killed before a start has stored a measurement: to start takes longer than a played cell.
        """
        while self.kills.total() < kills:
            stored = self._stored()
            process = self.start()
            while amid_cells and self._stored() <= stored:
                assert not self._ended_within(process, 0.01), self.log()
            while self.kills.total() < kills and not self._ended_within(process, self._rng.uniform(0, self._longest_s)):
                self._kill(process)
            if self.kills.total() == kills:
                self._end(process)

    def finish(self) -> None:
        """Resumes, undisturbed, until nothing is left to do."""
        while self._open():
            process = self.start()
            assert process.wait() == 0, self.log()

    def start(self) -> subprocess.Popen[bytes]:
        """The command that somebody would give now: `resume` where a run is open, else a new `nightly`."""
        verb = "resume" if self._open() else "nightly"
        words = ["--plan", str(self._plan), *self._words] if verb == "nightly" else []
        return self.call(verb, *words, "--no-store", "--out", str(self.runs))

    def call(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts the command line in a session of its own; what it prints goes to `log`."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **self._environ}
        environ |= {"TMPDIR": str(self._tmp), _VARIABLE: self._token}
        command, how = [sys.executable, "-m", "jobs.cli", *words], {"cwd": self.folder, "start_new_session": True}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, env=environ, stdout=log, stderr=log, **how)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def processes(self) -> list[int]:
        needle = f"{_VARIABLE}={self._token}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def clear(self) -> None:
        for pid in self.processes():
            _kill(pid)

    def _stored(self) -> int:
        """How many measurements the open bundles have."""
        return sum(path.read_bytes().count(_MEASURED) for path in self.runs.glob("*.jsonl"))

    def _open(self) -> bool:
        return any(self.runs.glob("*.jsonl"))

    def _ended_within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                assert code in (0, -signal.SIGKILL) or self._gave_up(code), self.log()
                return True
            time.sleep(0.02)
        return False

    def _gave_up(self, code: int) -> bool:
        # An end in one line is right, if `resume` then goes on.
        last = self.log().splitlines()[-1]
        return self.kills["worker"] > 0 and code == 2 and f"inductor-watch: {_FATAL}" in last

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        kind = self._rng.choice(KINDS)
        if kind == "worker":
            workers = [pid for pid in _below(process.pid) if pid in self.processes()]
            if not workers:
                return  # none yet
            _kill(self._rng.choice(workers))
        else:
            self._end(process)
            if kind == "host":
                self.clear()
        self.kills[kind] += 1

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


def _below(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *_below(child))]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
