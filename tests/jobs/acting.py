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
from typing import Any, NamedTuple

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
    facts = {"torch": "2.13.0", "torch_git": "f" * 40, "device": "cpu", "cpu": "A CPU", "cores": 2, "node": "here"}
    variables = {
        "PYTHONPATH": f"{PLAYER}{os.pathsep}{ROOT}",
        "PLAY_HEALTH": "",
        "PLAY_ENVIRONMENT": json.dumps(facts | more),
    }
    return player_variables(log, **variables, **{SKIP_VARIABLE: "1"})


class Line(NamedTuple):
    """A line of the log: which process of which cell did what with which of its steps."""

    moment: float
    number: int
    pid: int
    event: str
    at: int
    name: str


class Span(NamedTuple):
    """A step of a cell from its begin to its end."""

    number: int
    name: str
    begin: float
    end: float

    def holds(self, moment: float) -> bool:
        return self.begin <= moment <= self.end

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


@dataclass(slots=True)
class Trace:
    """What the cells of a run have logged, by their numbers."""

    spans: list[Span] = field(default_factory=list)
    ticks: list[Line] = field(default_factory=list)
    #: From the first to the last line of every process.
    lives: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def named(self, *names: str) -> list[Span]:
        return [span for span in self.spans if span.name in names]

    def of(self, number: int, name: str) -> list[Span]:
        return [span for span in self.named(name) if span.number == number]

    def others_in(self, span: Span) -> list[Line]:
        """The moments within a step in which other cells ran."""
        return [tick for tick in self.ticks if tick.number != span.number and span.holds(tick.moment)]


def read_log(path: Path) -> list[Line]:
    text = path.read_text() if path.exists() else ""
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        moment, number, pid, event, at, name = line.split()
        found.append(Line(float(moment), int(number), int(pid), event, int(at), name))
    return found


def read_trace(path: Path) -> Trace:
    """What a log says; a step that never ended is not in `spans`."""
    trace = Trace()
    lives: dict[int, list[Line]] = defaultdict(list)
    for line in sorted(read_log(path)):
        lives[line.pid].append(line)
        if line.event == "tick":
            trace.ticks.append(line)
        elif line.event == "end":
            (begin,) = [one.moment for one in lives[line.pid] if (one.event, one.at) == ("begin", line.at)]
            trace.spans.append(Span(line.number, line.name, begin, line.moment))
    for lines in lives.values():
        trace.lives[lines[0].number].append((lines[0].moment, lines[-1].moment))
    return trace


class Stage:
    """Where cells play: one log for all that is played on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"

    def scheduler(self, cells: Sequence[Cell], where: DeviceSlot, settings: Settings = PATIENT) -> GpuScheduler:
        """A scheduler of such cells, started without a preloaded server."""
        return GpuScheduler(cells, settings, where, {**os.environ, **player_variables(self.log)})

    def play(self, scripts: Iterable[str], workers: int, settings: Settings = PATIENT) -> tuple[list[Outcome], Trace]:
        """Plays scripts, numbered from 1, on workers that share this machine's cores."""
        cells = [acted(script, number) for number, script in enumerate(scripts, 1)]
        found = list(Pool([self.scheduler(cells, slot(workers), settings)]).run())
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
