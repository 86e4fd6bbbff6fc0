"""Play the processes that a check recorded again: how many cells are decided when, by today's rules.

    python -m benchmarks played_check FOLDER [--extra-cells 5] [--workers 15] [--minutes 5] [--ready 20] [--seed 0]

FOLDER has the bundles of a check of other code in nearly all cells (`check --out FOLDER`). The check, its verdicts and its
scheduler are the real ones; time is only counted. A process plays its recorded work without waits and stops
(`benchmarks.played_night`), and has the recorded figures. A round that was not recorded has the figures of an earlier process of
the cell, with a deviation of 0.2 % (device time) and 1 % (latency), and the steps of another process of its phase that found its
program. A cell that no process measured is played like another one of its phase. The census is asked after 9 s and answers after
19 to 29 s, and the fork servers are ready after 20 s, as in a check on an H200 (246804bb). Memory is not played, nor the slowdown
by cells on other cores. So the result compares rules, and is no forecast.
"""

from __future__ import annotations

import copy
import random
import re
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import click

from benchmarks.played_night import Played
from collector.bundle import CENSUS, CHECK, read_bundle
from collector.code import Code
from collector.machine.environment import environment_id
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import CHECKED_BY, UNCHECKED, Cell, Measurement, Stage, Status
from db.engine import open_store
from jobs.checking import check_sides, rounds
from jobs.checking.check_sides import CheckedSide, CodeAnswer, soonest
from jobs.checking.rounds import Check
from jobs.options import Storage
from jobs.pool import gpu_scheduler, runner
from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler, Job
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RunNames
from tests.jobs.virtual import Script, Step, VirtualCell, World

#: Seconds until the census is asked, and its first answers.
_ASKED_S, _ANSWERS_S = 9.0, (19.0, 20.0, 24.0, 25.0, 27.0, 29.0)
_DEVICE_NOISE, _LATENCY_NOISE = 0.002, 0.01
_COMPILING = ("compile_cold_s", "tuning_s", "compile_instructions")
_SIDES = ("base", "new")


class Recorded:
    """The processes that the bundles of a check recorded, by cell and side, and the cells of the check."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.cells: Sequence[Cell] = ()
        self.environments: dict[str, dict[str, Any]] = {}
        self._found: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
        self._random = random.Random(seed)
        for path in sorted(folder.glob("*.jsonl*")):
            contents = read_bundle(path)
            side = contents.header.night.rpartition("-")[2]
            if side == "base" and len(contents.planned) > len(self.cells):
                self.cells = contents.planned
            self.environments |= contents.environments
            for found in contents.measurements:
                if "held_s" in found.details and found.status is Status.PASS and found.details.get("only") is None:
                    self._found[found.cell.cell_id, side].append(found)

    def process(self, cell: Cell, side: str, number: int) -> tuple[Measurement, list[Step]]:
        """Return what the process of this number (from 0) of a cell's side measured, and its steps."""
        others = (name for name in _SIDES if name != side)
        all_here = next(filter(None, (self._found.get((cell.cell_id, name), []) for name in (side, *others))), None)
        firsts = [one for one in all_here or self._of_phase(cell) if "compiled_before" not in one.details]
        laters = [one for one in all_here or () if "compiled_before" in one.details]
        if number == 0 or not firsts:
            return copy.deepcopy(firsts[0]), _steps(firsts[0])
        if number <= len(laters):
            return copy.deepcopy(laters[number - 1]), _steps(laters[number - 1])
        found = copy.deepcopy(laters[-1] if laters else firsts[0])
        for metrics, noise in (("_kernel_ms", _DEVICE_NOISE), ("_ms", _LATENCY_NOISE)):
            factor = 1 + self._random.gauss(0, noise)
            for name in ("eager", "compiled"):
                if (value := found.metrics.get(name + metrics)) is not None:
                    found.metrics[name + metrics] = factor * value
        found.metrics = {name: value for name, value in found.metrics.items() if name not in _COMPILING}
        found.details["compiled_before"] = True
        alike = laters or [one for one in self._of_phase(cell) if "compiled_before" in one.details]
        return found, _steps(self._random.choice(alike or firsts))

    def _of_phase(self, cell: Cell) -> list[Measurement]:
        return [one for several in self._found.values() for one in several if one.cell.phase is cell.phase]


def _steps(found: Measurement) -> list[Step]:
    """Return the steps of a process; the memory that it needs is not played."""
    steps = [step for step in Played(found, 0).script().steps if step.name != "profile"]
    if Stage.CORRECTNESS.value not in found.details["stage_s"]:
        steps = [step for step in steps if step.stage is not Stage.CORRECTNESS]
    return [replace(step, needs=None if step.needs is None else 0, keeps=0, takes=0) for step in steps]


class _Process(VirtualCell):
    """A process that plays a recorded one."""

    def __init__(self, play: _Play, job: Cell, settings: Settings, side: str, cores: Sequence[int]) -> None:
        number = play.processes[job.cell_id, side]
        play.processes[job.cell_id, side] += 1
        self._found, self._steps = play.recorded.process(job, side, 0 if settings.code_only else number)
        if settings.code_only:
            metrics = {name: value for name, value in self._found.metrics.items() if name == "compile_cold_s"}
            self._found.metrics, self._found.samples = metrics, {}
            self._found.details["only"] = "code"
            self._steps = [one for one in self._steps if one.stage not in (Stage.TIMING, Stage.CORRECTNESS)]
        if settings.unchecked:
            self._found.details[CHECKED_BY] = UNCHECKED
            self._steps = [one for one in self._steps if one.stage is not Stage.CORRECTNESS]
        self._play = play
        play.world.scripts[job.batch_size] = Script(self._steps)  # which is read at once
        super().__init__(play.world, job, replace(settings, compiled=str(play.folder / "programs")), cores)

    def describe(self) -> str:
        return f"{self.cell} in {self.stage}"

    def close(self) -> Outcome:
        found, play = self._found, self._play
        found.cell, found.started_at = self.cell, play.moment(self.began)
        found.wall_s = round(play.world.now - self.began, 3)
        if not self.finished:
            found.status = Status.CRASHED
        code = Code(found.code_id, ()).to_json() if found.code_id else None
        return Outcome(found, play.recorded.environments[str(found.environment_id)], code=code or {})


@dataclass(eq=False)
class _Server:
    """A fork server of a side, and its launcher."""

    play: _Play
    side: str
    is_lost = lost = False
    environ: dict[str, str] | None = None

    @property
    def launcher(self) -> _Server | None:
        return self

    @launcher.setter
    def launcher(self, _: None) -> None:
        pass

    @property
    def is_ready(self) -> bool:
        return self.play.world.now >= self.play.ready_s

    def prepare(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Play:
    """A check that is played; `told` are its lines with their seconds. It is its own pool, census and meter."""

    def __init__(self, recorded: Recorded, slot: DeviceSlot, folder: Path, ready_s: float) -> None:
        self.recorded, self.slot, self.folder, self.ready_s = recorded, slot, folder, ready_s
        self.world = World((), slot)
        self.world.now = _ASKED_S
        self.processes, self.told = Counter[tuple[str, str]](), list[tuple[float, str]]()

    def moment(self, seconds: float) -> str:
        """Return a moment of the play as a time of some day."""
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")

    def tell(self, line: str) -> None:
        self.told.append((self.world.now, line))

    def turn(self) -> Iterator[tuple[int, Job, Outcome]]:
        self.world.scheduler.start_waiting()
        self.world._advance()
        yield from ((0, job, outcome) for job, outcome in self.world.scheduler.turn())

    def tell_under_way(self, head: str) -> None:
        self.tell(head)

    def leave(self, cores: int, most: int | None = None) -> None:
        pass

    stand = go_on = lambda self: None

    def ask(self, cells: Sequence[Cell], until: float) -> Generator[CodeAnswer | None]:
        for cell, moment in zip(sorted(cells, key=soonest), _ANSWERS_S, strict=False):
            while self.world.now < moment:
                yield None
            yield CodeAnswer(cell, *(self._generated(cell, side) for side in _SIDES))

    def _generated(self, cell: Cell, side: str) -> Outcome:
        environment, code_id = {"census": "H200", "device": "cuda", "torch_git": side}, f"{cell.model}-{side}"
        found = Measurement(cell, Status.NOT_CHECKED, self.moment(self.world.now), 1.0, code_id=code_id)
        found.details[CENSUS] = {"known": True, "questions": []}
        found.environment_id = environment_id(environment)
        return Outcome(found, environment, code=Code(code_id, ()).to_json())

    def run(self, minutes: float) -> Check:
        """Play the check to its end."""
        database, names = str(self.folder / "store.db"), {word: f"played-{word}" for word in _SIDES}
        open_store(database, write=True).dispose()
        environment = next(one for one in self.recorded.environments.values() if "census" not in one)
        testbeds = [Testbed(self.slot, environment, ExecutionOptions(len(self.slot.cores), start="spawn"))]
        sides = [
            CheckedSide(word, word, RunNames(word, word[0] * 40, trigger=CHECK, night=names[word]), testbeds)
            for word in _SIDES
        ]
        storage, settings = Storage(self.folder / "runs", False, database), Settings(shared_tuning=str(self.folder))
        until = _ASKED_S + 60 * minutes
        check = Check(*sides, self.recorded.cells, settings, storage, until, (), self)  # type: ignore[arg-type]
        check._servers = {word: _Server(self, word) for word in _SIDES}  # type: ignore[misc]
        self.world.scheduler = GpuScheduler((), Settings(), self.slot, {}, None, lambda *_: 0.0)
        with self._instead_of_a_machine():
            check.run()
        return check

    def _instead_of_a_machine(self) -> ExitStack:
        clock = SimpleNamespace(monotonic=lambda: self.world.now)

        def start(cell: Cell, settings: Settings, server: _Server, *others: Any) -> _Process:
            return _Process(self, cell, settings, server.side, others[1])

        of_scheduler = {
            "time": clock,
            "CellProcess": start,
            "why_unhealthy": lambda *_: None,
            "stand_together": lambda cells: [one.stand() for one in cells],
        }
        of_check = {
            "time": clock,
            "tell": self.tell,
            "Pool": lambda *_: self,
            "scheduler_for": lambda *_: self.world.scheduler,
            "meter_of": lambda _: _Meter(),
            "off_quiet_cores": lambda _: nullcontext(),
            "read_history": lambda _: (),
            "has_cores_for_all": lambda: True,
            "ThreadPoolExecutor": _AtOnce,
        }
        with ExitStack() as stack:
            stack.enter_context(patch.multiple(gpu_scheduler, **of_scheduler))
            stack.enter_context(patch.multiple(rounds, **of_check))
            for module in (runner, check_sides):
                stack.enter_context(patch.object(module, "now", lambda: self.moment(self.world.now)))
            return stack.pop_all()


class _Meter(nullcontext[None]):
    took = usage = lambda *_: ""


class _AtOnce(ThreadPoolExecutor):
    """An executor without a thread."""

    def submit(self, do: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(do(*arguments))
        return done


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--workers", default=15, show_default=True, type=click.IntRange(1))
@click.option("--extra-cells", default=5, show_default=True, type=click.IntRange(0))
@click.option("--minutes", default=4.9, show_default=True, type=click.FloatRange(0.1), help="What is left when asked.")
@click.option("--ready", default=20.0, show_default=True, help="Seconds until the fork servers are ready.")
@click.option("--seed", default=0, show_default=True)
@click.option("--verbose", is_flag=True, help="Print the lines of the check.")
def main(folder: Path, workers: int, extra_cells: int, minutes: float, ready: float, seed: int, verbose: bool) -> None:
    """Play the check whose bundles are in FOLDER."""
    slot = DeviceSlot([[core] for core in range(workers)], {}, float("inf"), [workers], extra_cells)
    with TemporaryDirectory() as scratch:
        play = _Play(Recorded(folder, seed), slot, Path(scratch), ready)
        check = play.run(minutes)
    if verbose:
        print("\n".join(f"{seconds:.0f} {line}" for seconds, line in play.told))
    decided = [(seconds, int(found[1])) for seconds, line in play.told if (found := re.match(r"(\d+) decided", line))]
    first_s = next((seconds for seconds, count in decided if count), None)
    words = [
        f"{max((n for at, n in decided if at <= until), default=0)} after {until} s" for until in (150, 200, 250, 300)
    ]
    most, most_s = max(((count, -seconds) for seconds, count in decided), default=(0, 0.0))
    alone_s = sum(seconds for purpose, seconds in play.world.scheduler.held_s.items() if purpose != "device")
    print(
        f"first decided after {first_s or 0:.0f} s; decided: {', '.join(words)}, at most {most} after {-most_s:.0f} s"
    )
    print(
        f"{sum(play.processes.values())} processes, {len(+check.timed)} cells timed, {alone_s:.0f} s of one cell alone"
    )


if __name__ == "__main__":
    main()
