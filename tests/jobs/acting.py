"""Cells that play a script instead of measuring, and what their log says about who ran when."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase
from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler
from jobs.pool.runner import Pool

PLAYER, ROOT = Path(__file__).parent / "player", Path(__file__).resolve().parents[2]
#: Far more than any script takes: a cell that waits for ever becomes a timeout, not a hanging test.
PATIENT = Settings(timeout_s=20)
CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = [CORES[0]], [CORES[-1]]


def acted(script: str, number: int, device: str = "cpu") -> Cell:
    return Cell("acted", script, Phase.INFERENCE, "float32", device, number, Config(backend="eager"))


def slot(workers: int, **changes: Any) -> DeviceSlot:
    return DeviceSlot([[FIRST, LAST][number % 2] for number in range(workers)], **changes)


def player_variables(log: Path, **more: str) -> dict[str, str]:
    """What has a process play its part and log into a file."""
    return {"PYTHONPATH": str(PLAYER), "PLAY_LOG": str(log), **more}


def played_host(log: Path, **more: Any) -> dict[str, str]:
    """Variables under which the command line plays cells instead of measuring them; `more` are facts of its environment."""
    facts = {
        "torch": "2.13.0",
        "torch_git": "f" * 40,
        "device": "cpu",
        "cpu": "A CPU",
        "cores": 2,
        "node": "here",
        **more,
    }
    variables = {"PYTHONPATH": f"{PLAYER}{os.pathsep}{ROOT}", "PLAY_ENVIRONMENT": json.dumps(facts), "PLAY_HEALTH": ""}
    return player_variables(log, **variables, **{SKIP_VARIABLE: "1"})


@dataclass(frozen=True, slots=True)
class Span:
    """A step of a cell: when it was asked for (the device only), began and ended."""

    number: int
    name: str
    asked: float
    begin: float
    end: float

    def holds(self, moment: float) -> bool:
        return self.begin <= moment <= self.end

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True, slots=True)
class Tick:
    number: int
    name: str
    moment: float


@dataclass(slots=True)
class Trace:
    """What the cells of a run have logged, by their numbers."""

    spans: list[Span] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    #: From the first to the last line of every process.
    lives: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def named(self, *names: str) -> list[Span]:
        return [span for span in self.spans if span.name in names]

    def of(self, number: int, *names: str) -> list[Span]:
        return [span for span in self.spans if span.number == number and (not names or span.name in names)]

    def others_in(self, span: Span) -> list[Tick]:
        """The moments within a step in which other cells ran."""
        return [tick for tick in self.ticks if tick.number != span.number and span.holds(tick.moment)]


@dataclass(frozen=True, slots=True)
class Line:
    moment: float
    number: int
    pid: int
    parent: int
    event: str
    at: str
    name: str


def read_log(path: Path) -> list[Line]:
    text = path.read_text() if path.exists() else ""
    found = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            moment, number, pid, parent, event, at, name = line.split()
            found.append(Line(float(moment), int(number), int(pid), int(parent), event, at, name))
    return found


def read_trace(path: Path) -> Trace:
    """What a log says; a step that never ended is not in `spans`."""
    trace, asked, begun = Trace(), {}, {}
    lives: dict[int, list[Line]] = defaultdict(list)
    for line in sorted(read_log(path), key=lambda line: line.moment):
        lives[line.pid].append(line)
        step = (line.pid, line.at)
        if line.event == "ask":
            asked[step] = line.moment
        elif line.event == "begin":
            begun[step] = line.moment
        elif line.event == "tick":
            trace.ticks.append(Tick(line.number, line.name, line.moment))
        elif line.event == "end":
            begin = begun[step]
            trace.spans.append(Span(line.number, line.name, asked.get(step, begin), begin, line.moment))
    for lines in lives.values():
        trace.lives[lines[0].number].append((lines[0].moment, lines[-1].moment))
    return trace


@dataclass(slots=True)
class Stage:
    """Where cells play: one log for all that is played on it."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def scheduler(
        self, cells: Sequence[Cell], where: DeviceSlot, settings: Settings = PATIENT, **options: Any
    ) -> GpuScheduler:
        """A scheduler of such cells, started without a preloaded server."""
        return GpuScheduler(cells, settings, where, {**os.environ, **player_variables(self.log)}, **options)

    def play(
        self, scripts: Iterable[str], workers: int | DeviceSlot, settings: Settings = PATIENT, **options: Any
    ) -> tuple[list[Outcome], Trace]:
        """Plays scripts, numbered from 1, on workers that share this machine's cores."""
        cells = [acted(script, number) for number, script in enumerate(scripts, 1)]
        where = workers if isinstance(workers, DeviceSlot) else slot(workers)
        found = list(Pool([self.scheduler(cells, where, settings, **options)]).run())
        return [outcome for _, outcome in found], read_trace(self.log)


@contextmanager
def when(happened: Callable[[], Iterable[int]], times: int = 1) -> Iterator[list[int]]:
    """Kills processes as soon as `happened` names some, that many times; yields the list of those killed so far."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while len(killed) < times and not over.is_set():
            for pid in happened():
                if pid not in killed and len(killed) < times:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
            time.sleep(0.005)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def end_budget_when(monkeypatch: Any, happened: Callable[[], bool]) -> None:
    """Stops the pool's clock until something has happened; then every budget is over."""

    class Clock:
        sleep = staticmethod(time.sleep)

        def monotonic(self) -> float:
            return 1e9 if happened() else 0.0

    monkeypatch.setattr("jobs.pool.runner.time", Clock())
