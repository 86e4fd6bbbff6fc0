"""Cells that play scripts in time that is only counted: thousands of them in a second, with every rule checked at each moment.

The scheduler is the real one; processes, fork server and clock are not. What real processes do is in `tests.jobs.acting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Failure, Measurement, Phase, Stage, Status
from jobs.plan.cost import CONTEXT_BYTES
from jobs.pool import gpu_scheduler
from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler

#: Virtual seconds in which nobody gets on: more than the scheduler's patience with a cell that waits for memory.
_STUCK_S = 300.0
_TINY_S = 1e-9
#: What a second process measures again.
_TIMED = ("eager_ms", "eager_kernel_ms", "compiled_ms", "compiled_kernel_ms", "idle_probe", "throttled")


@dataclass(frozen=True)
class Step:
    """What a cell does for some seconds: `work`, or what it holds the device for, with bytes it needs and then keeps."""

    name: str
    seconds: float
    needs: int | None = 0
    keeps: int = 0
    stage: Stage = Stage.COMPILE
    #: What it takes where it cannot say its needs: more than it was promised ends the cell.
    takes: int = 0


@dataclass(frozen=True)
class Script:
    """The steps of a cell and the status of each attempt; `crash` ends it in the middle of its last step.

    `found` are the metrics and details of each attempt; they are those of its timing where it finds its program.
    """

    steps: Sequence[Step]
    statuses: Sequence[str] = ("pass",)
    found: Sequence[tuple[dict[str, float], dict[str, object]]] = ()


class VirtualLauncher:
    def __init__(self, *_: object) -> None:
        self.lost, self.is_ready = False, True

    def close(self) -> None:
        self.lost = True


class VirtualProcess:
    """A process that may have to stand still."""

    stopped = False

    def stand(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        self.stopped = False


class VirtualCell(VirtualProcess):
    is_leaving = False

    def __init__(self, world: World, cell: Cell, settings: Settings, cores: Sequence[int]) -> None:
        self.world, self.cell, self.cores = world, cell, list(cores)
        program = Path(settings.compiled, "program")
        world.begun.append((cell.batch_size, program.exists(), bool(settings.passed_code)))
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()
        self.script = world.scripts[cell.batch_size]
        self.attempt = world.attempts[cell.batch_size]
        world.attempts[cell.batch_size] += 1
        self.stage, self.asks, self.holds, self.purpose = Stage.START, None, False, ""
        self.needs: int | None = None
        self.promised: float | None = None
        self.most_asked, self.is_short = 0, False
        self.keeps, self.asked_at, self.stopped, self.finished, self.at = 0, 0.0, False, False, -1
        self.held_s: dict[str, float] = {}
        self.began, self.left_s = world.now, 0.0
        self.waited_s = self.stopped_s = 0.0
        self._go_to_next()

    @property
    def asked_s(self) -> float:
        return self.world.now - self.asked_at if self.asks else 0.0

    @property
    def runs(self) -> bool:
        return not self.finished and not self.stopped and not self.asks

    def advance(self, seconds: float) -> None:
        self.stopped_s += seconds if self.stopped else 0.0
        self.waited_s += seconds if self.asks and not self.stopped else 0.0
        if not self.runs:
            return
        self.left_s -= seconds
        if self.holds:
            self.held_s[self.purpose] = self.held_s.get(self.purpose, 0.0) + seconds
        if self.left_s <= _TINY_S:
            if self.is_short or (self._status == "crash" and self.at == len(self.script.steps) - 1):
                self.finished = True  # it holds what it holds
                return
            self.keeps, self.holds = (self.script.steps[self.at].keeps if self.holds else self.keeps), False
            self._go_to_next()

    def _go_to_next(self) -> None:
        self.at += 1
        if self.at == len(self.script.steps):
            self.finished = True
            return
        step = self.script.steps[self.at]
        self.left_s, self.stage = max(step.seconds, 1e-6), step.stage
        if step.name != "work":
            self.asks, self.asked_at, self.needs = step.name, self.world.now, step.needs
            self.most_asked = max(self.most_asked, step.needs or 0)

    @property
    def _status(self) -> str:
        return self.script.statuses[min(self.attempt, len(self.script.statuses) - 1)]

    def pump(self) -> None:
        pass

    def grant(self, idle_ms: float, room_bytes: float, eager_ms: float, promised: float | None) -> None:
        assert self.asks, "it gets what it asks for"
        self.world.waits.append((self.cell.batch_size, self.asks, self.asked_s))
        self.purpose, self.asks, self.holds, self.promised = self.asks, None, True, promised
        self.world.check_memory(self)
        step = self.script.steps[self.at]
        self.is_short = promised is not None and step.takes > promised
        self.left_s = _TINY_S if self.is_short else self.left_s

    def move(self, cores: Sequence[int]) -> None:
        self.cores = list(cores)

    def close(self) -> Outcome:
        if not self.finished and self.world.server.launcher:
            # The scheduler sends it back: that is no attempt.
            self.world.sent_back[self.cell.batch_size] += 1
            self.world.attempts[self.cell.batch_size] -= 1
            return Outcome(Measurement(self.cell, Status.CRASHED, "", 0.0))
        status = {"crash": "crashed", "no_room": "pass"}.get(self._status, self._status)
        status = status if self.finished else "crashed"
        found = Measurement(self.cell, Status(status), "", self.world.now - self.began, code_id="code")
        if self.is_short:
            found.status, found.failure = Status.OOM, Failure(self.stage, "OutOfMemoryError", "more than was promised")
        found.details |= {"waited_s": self.waited_s + self.stopped_s, "stopped_s": self.stopped_s}
        self.world.lives.append((self.cell.batch_size, self.began, self.world.now))
        if self.script.found:
            found.metrics, details = self.script.found[self.attempt]
            found.details |= details
        return Outcome(found, lacked_room=self._status == "no_room", timed=_TIMED)


class World:
    """One device and its cells; `run` plays them to the end. `events` happen at a moment, such as the loss of the fork server."""

    def __init__(
        self,
        scripts: Iterable[Script],
        slot: DeviceSlot,
        memory_of: Callable[[Cell, Stage], float | None] = lambda *_: 0.0,
        events: Mapping[float, Callable[[World], None]] | None = None,
        settings: Settings = Settings(),  # noqa: B008 - it is frozen
    ) -> None:
        self.scripts = dict(enumerate(scripts, 1))
        self.now, self.attempts, self.slot = 0.0, Counter[int](), slot
        self.waits: list[tuple[int, str, float]] = []
        self.lives: list[tuple[int, float, float]] = []
        self.outcomes: list[Outcome] = []
        self.overbooked = 0
        self.sent_back = Counter[int]()
        #: Of each process the cell's number, whether it finds a program, and whether that is known to be right.
        self.begun: list[tuple[int, bool, bool]] = []
        self._events = sorted((events or {}).items())
        of_all = "acted", "virtual", Phase.INFERENCE, "float32", "cuda"
        cells = [Cell(*of_all, number, Config(backend="eager")) for number in self.scripts]
        self.scheduler = GpuScheduler(cells, settings, slot, {}, None, memory_of)
        (self.server,) = self.scheduler._servers
        #: What stands still beside the cells, as the census does.
        self.neighbour = VirtualProcess()
        self.scheduler.neighbours = [self.neighbour]

    def run(self) -> list[Outcome]:

        def start(cell: Cell, how: Settings, _: object, __: object, cores: Sequence[int], ___: object) -> VirtualCell:
            return VirtualCell(self, cell, how, cores)

        clock = SimpleNamespace(monotonic=lambda: self.now)
        fakes = {
            "stand_together": lambda cells: [one.stand() for one in cells],
            "time": clock,
            "CellProcess": start,
            "Launcher": VirtualLauncher,
            "why_unhealthy": lambda *_: None,
        }
        with patch.multiple(gpu_scheduler, **fakes):
            try:
                still_s = 0.0
                while self.scheduler.busy:
                    while self._events and self._events[0][0] <= self.now:
                        self._events.pop(0)[1](self)
                    self.scheduler.start_waiting()
                    self._check()
                    still_s = 0.0 if self._advance() else still_s + 0.1
                    assert still_s < _STUCK_S, (
                        f"no progress: {[(one.cell.batch_size, one.asks) for one in self.active]}"
                    )
                    self.outcomes += [outcome for _, outcome in self.scheduler.turn()]
                    self._check()
            finally:
                self.scheduler.close()
        return self.outcomes

    @property
    def active(self) -> list[VirtualCell]:
        return list(self.scheduler.active)  # type: ignore[arg-type]

    def _advance(self) -> bool:
        """Go to where the next step ends; return whether anybody got on."""
        running = [one for one in self.active if one.runs]
        seconds = min((one.left_s for one in running), default=0.1)
        if any(one.asks for one in self.active):
            seconds = min(seconds, 0.1)  # it may be somebody's turn before
        if self._events:
            seconds = max(_TINY_S, min(seconds, self._events[0][0] - self.now))
        self.now += seconds
        for one in self.active:
            one.advance(seconds)
        return bool(running) or any(one.finished for one in self.active)

    def _check(self) -> None:
        """Raise where a rule is broken at this moment."""
        active = self.active
        alone = [one for one in active if one.holds and one.purpose != "device"]
        assert len(alone) <= 1, "one at a time has the device for itself"
        quiet = self.slot.quiet_cores
        on_sets = [one for one in active if not one.stopped and not one.asks and not (quiet and one in alone)]
        taken = Counter(tuple(one.cores) for one in on_sets)
        assert all(list(cores) in self.slot.cores and times == 1 for cores, times in taken.items()), "a set for each"
        is_full = len(on_sets) == len(self.slot.cores)
        if not alone:
            assert is_full or not any(one.stopped for one in active), "nobody stands still for nobody"
            assert not self.neighbour.stopped
            return
        (one,) = alone
        assert not one.stopped
        others = [other for other in active if other is not one]
        assert not any(other.holds and not other.stopped for other in others if not other.finished)
        repeated = self.scheduler._jobs[one] in self.scheduler._in_quiet
        if one.purpose in ("choose", "still") or not quiet or repeated:
            assert not any(other.runs for other in others)
            assert self.neighbour.stopped
        else:
            assert not self.neighbour.stopped, "it goes on beside a measurement"
            compiling = [other for other in others if not other.holds]
            assert is_full or not any(other.stopped for other in compiling), "who compiles goes on"
        assert not quiet or one.cores == list(quiet)
        assert not any(other.cores == list(quiet) for other in others if quiet)

    def check_memory(self, granted: VirtualCell) -> None:
        """Raise where more memory is promised than there is; the last resort is allowed and counted."""
        promised = {
            one: max(one.keeps, self._promise(one) if one.holds else 0.0) + CONTEXT_BYTES for one in self.active
        }
        if sum(promised.values()) <= self.slot.memory_bytes or granted.keeps >= self._promise(granted):
            return
        others = [one for one in self.active if one is not granted]
        assert not any(one.holds for one in others), "nobody uses the device in the last resort"
        assert all(one.asks or one.finished for one in others), "all wait in the last resort"
        self.overbooked += 1

    def _promise(self, one: VirtualCell) -> float:
        return self.scheduler._needs(one)  # type: ignore[arg-type]
