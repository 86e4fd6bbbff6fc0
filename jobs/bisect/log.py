"""The log of a bisection: every run and every decision a JSON line, from which it is taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.builds.build import BuildError


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one build: how its cell ended, the metric (None where there is none), the commit, and the bundle.

    `eager` is the eager latency of the same process, `eager_kernel` its device time; None where there is none, and in
    older logs.
    """

    status: str
    value: float | None
    commit: str
    bundle: str
    eager: float | None = None
    eager_kernel: float | None = None


class BisectionLog:
    """A file of JSON lines, each with `event` and `at`: `asked` first, then `run`, `skipped`, `decided`, at last `answer`.

    Runs are read back; decisions are made anew from them, and come out the same.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        """Opens the log, or begins it with what was asked.

        Raises:
            BuildError: the file is the log of something else.
        """
        self.path = path
        self._runs: dict[str, list[Reading]] = {}
        self._told: set[str] = set()
        asked = json.loads(json.dumps(asked))
        path.parent.mkdir(parents=True, exist_ok=True)
        events = _read(path)
        if events and events[0].get("asked") != asked:
            raise BuildError(f"{path} is the log of another bisection: name another folder with --out")
        for event in events:
            self._take(event)
        if not events:
            self.write("asked", asked=asked)

    def runs_of(self, name: str) -> list[Reading]:
        """The runs of a build, in their order."""
        return list(self._runs.get(name, ()))

    def add_run(self, name: str, reading: Reading) -> None:
        """Keeps a run."""
        self._runs.setdefault(name, []).append(reading)
        self.write("run", build=name, number=len(self._runs[name]), **asdict(reading))

    def decide(self, **what: Any) -> None:
        """Keeps a decision, once: a bisection that is taken up again comes to the same ones."""
        line = json.dumps(what, sort_keys=True)
        if line not in self._told:
            self._told.add(line)
            self.write("decided", **what)

    def write(self, event: str, **fields: Any) -> None:
        """Appends one line; it is on disk when this returns."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": event, "at": moment, **fields}) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "run":
            fields = {name: event[name] for name in Reading.__dataclass_fields__ if name in event}
            self._runs.setdefault(event["build"], []).append(Reading(**fields))
        elif event["event"] == "decided":
            self._told.add(json.dumps({key: event[key] for key in event if key not in ("event", "at")}, sort_keys=True))


def _read(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; what a kill left of a last one is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    try:
        found = [json.loads(line) for line in whole.splitlines()]
        for event in found:
            if not isinstance(event["event"], str) or (event["event"] == "run" and not _is_run(event)):
                raise ValueError("no event")
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{path} is no log of a bisection: name another folder with --out") from error
    return found


def _is_run(event: Mapping[str, Any]) -> bool:
    return {"build", "status", "value", "commit", "bundle"} <= event.keys()
