"""One device and the workers that share it: which cells may use it, which cells are stopped, and which cells start next.

A worker gets a job: a cell, its settings, and the server that starts its process. A night has one server; the two sides of a
check have one each, and share the device. Jobs may be added meanwhile.

Measuring is a small part of a cell; most of it is importing and compiling on the CPU. Each worker has cores for one cell at a
time. A cell asks for the device for one of these purposes, with the bytes of device memory that it needs meanwhile:

- `device`: to load or run its model. Several cells may do this at once.
- `tune`: to let Inductor time the configurations of a kernel.
- `measure`: to take latencies and device times.
- `choose`: to let Inductor time a library's matrix product beside kernels of its own.
- `still`: to take latencies again that the host's load made longer.

While a cell holds the device for any purpose but `device`, every other cell that holds it is stopped with SIGSTOP. The cell
waits until a probe shows that the device is idle, since a stopped process leaves kernels queued
(`collector.machine.yardstick`), and is moved to a core that is kept free for it. For `choose` and `still` all other cells are
stopped, also the cells that compile: beside their compilers Inductor rejected faster library calls (docs/results.md). If no core
is kept free, as on a CPU, all other cells are stopped for each purpose but `device`. The time for which a cell was stopped or
waited is subtracted from its compile time.

More cells are under way than there are workers, and share their cores (`jobs.pool.shared_cores`): a cell that waits for the
device or is stopped needs none. If too many cells could run, those that hold the device go first, then those that began first.
The others are stopped until cores are left for them.

Memory is promised, not measured (`jobs.plan.cost`). A cell starts if its peak, and the peak of each other cell, fits beside the
memory that all other cells keep between their calls. Then it waits until the memory that it needs fits beside what the other
cells keep or were promised. A cell that ran out of its promised memory before it knew its needs starts again with more. A cell
that ran out of memory beside others is measured again alone. If a cell was disturbed, its latencies are taken again while all
other cells are stopped (`jobs.pool.usage`), by a new process that finds the program of the first one. Repeats that do not help
are given up.

On an accelerator the first cell of a model tunes, and the model's other cells that tune alike take its choices
(`collector.measure.tuning`): they start when the first cell has compiled. Each run chooses anew, so two runs of one commit show
how much choices differ.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from collector.device import is_accelerator
from collector.machine.health import is_suspect, why_unhealthy
from collector.process.cell_process import CellProcess, stand_together
from collector.process.launcher import Launcher, LauncherError, Preload
from collector.process.orphans import PREFIX
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.usage_errors import ExpectedError
from collector.vocabulary import Cell, Stage, Status
from jobs.plan.cost import CONTEXT_BYTES, MemoryOf, MemoryPlan, is_long
from jobs.plan.spared_cells import TunedModel, tuned_model
from jobs.pool.shared_cores import SharedCores
from jobs.pool.usage import DisturbanceCheck

_SURELY_NOT_THE_DEVICE = frozenset(
    {
        *(Status.PASS, Status.CONFIG_ERROR, Status.UNAVAILABLE, Status.FAIL_ACCURACY),
        *(Status.OOM, Status.NOT_COMPILED, Status.NOT_CHECKED, Status.ILL_CONDITIONED),
    }
)
#: Fork servers that a scheduler may lose in a run before it gives up.
_SERVERS = 3

#: Bytes that tuning takes beside the weights: the inputs and outputs of one operator, and the buffer that flushes the L2 cache.
_TUNING_BYTES = 2e9
#: Stages in which a cell cannot know its needs itself.
_UNKNOWN = frozenset({Stage.START, Stage.RESOLVE_CONFIG, Stage.LOAD_MODEL, Stage.EAGER})
#: Stages in which a cell has not kept its choices for the other cells of its model.
_BEFORE_TUNED = _UNKNOWN | {Stage.COMPILE}
#: Purposes for which all other cells are stopped, not only the cells that use the device.
_ALL_STAND = frozenset({"choose", "still"})
#: Seconds that a cell waits for memory before memory is kept free for it.
_LONG_S = 3.0
#: Seconds in which no cell holds the device, though some ask for it, before a cell is sent back.
_STUCK_S = 15.0
#: Seconds between two looks through the waiting cells if none could start: a look takes milliseconds, in which cells wait.
_LOOK_S = 0.1
#: How often one cell is sent back.
_MOST_SENT_BACK = 2
#: Seconds for which cells may have the device alone, one after the other, while a cell that loads or runs its model is stopped,
#: and seconds for which that cell then goes on. The time that cells have the device alone limits a night of many workers: a
#: night of 183 programs on 15 workers, played from recorded cells, took 4 % longer with turns of half a second after each cell,
#: and no longer with these values.
_ALONE_S, _TURN_S = 2.0, 0.2


class LostDeviceError(ExpectedError):
    """An error for a GPU that stopped answering: earlier measurements are good, but all later ones of the night would fail."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """A device and the cores that belong to it: one set of cores for each worker, all of the same size.

    `extra_cells` is the number of cells that may be under way besides one for each worker; all of them share the workers' cores.
    `variables` are added to the environment of every process, `memory_bytes` is the memory that cells on this device may
    need together. `quiet_cores` are kept free for the cell that tunes or measures.
    """

    cores: Sequence[Sequence[int]]
    variables: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: float = float("inf")
    quiet_cores: Sequence[int] = ()
    extra_cells: int = 0

    @property
    def places(self) -> int:
        """The number of cells that may be under way at a time."""
        return len(self.cores) + self.extra_cells


class Server:
    """A server that starts the processes of cells in one environment: forks with `preload`, else new processes.

    Its launcher is the process that starts them. A lost launcher is replaced by another one, a few times.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        preload: Preload | None = None,
        cores: Sequence[int] = (),
        launcher: Launcher | None = None,
    ) -> None:
        self.environ, self._preload, self._cores = dict(environ), preload, cores
        self.launcher = launcher if launcher and not launcher.lost else None
        self._launchers = int(self.launcher is not None)

    def prepare(self) -> None:
        """Start the launcher if there is none; it imports in the background."""
        if self.launcher is None:
            self.launcher = Launcher(self.environ, self._preload, self._cores)
            self._launchers += 1

    @property
    def is_ready(self) -> bool:
        """Return whether processes can be started now."""
        return self.launcher is not None and self.launcher.is_ready

    @property
    def is_lost(self) -> bool:
        """Return whether the launcher has ended, and the processes that it started with it."""
        return self.launcher is not None and self.launcher.lost

    def require_another(self) -> None:
        """Raise `LauncherError` if too many launchers were lost to start another one."""
        if self._launchers >= _SERVERS:
            raise LauncherError(f"{self._launchers} fork servers were lost in one run: `resume` goes on")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A cell to measure, its settings, and the server that starts its process. Jobs of a lower rank get the device first."""

    cell: Cell
    settings: Settings
    server: Server
    rank: int = 0


class Neighbour(Protocol):
    """A program that works on the same cores beside the cells; a second call of a method has no effect."""

    def stand(self) -> None:
        """Pause the work."""

    def go_on(self) -> None:
        """Resume the work."""


class GpuScheduler:
    """A scheduler that measures cells on one device; `turn` yields outcomes in the order in which they come.

    `known_code` has, by `cell_id`, the code with which a cell need not be measured (`Settings.known_code`). The choices of tuning
    are in the folder `choices`, else in a folder that ends with the run. `neighbours` are paused whenever all other cells are
    stopped.
    """

    #: Purposes for which all other cells are stopped; a benchmark tries other purposes.
    all_stand = _ALL_STAND
    #: Whether measurements that a slow host alone disturbed are taken as they are.
    keeps_slow_host = False

    def __init__(
        self,
        cells: Sequence[Cell],
        settings: Settings,
        slot: DeviceSlot,
        environ: Mapping[str, str],
        preload: Preload | None = None,
        memory_of: MemoryOf = lambda *_: None,
        launcher: Launcher | None = None,
        known_code: Mapping[str, str] = MappingProxyType({}),
        choices: Path | None = None,
    ) -> None:
        self._slot = slot
        self._environ = {**environ, **slot.variables}
        #: Holds the folders of the cells. `close` removes it; its name is known before it is made, so that no signal can
        #: come between the two.
        self._folder = Path(tempfile.gettempdir(), PREFIX + secrets.token_hex(8))
        #: The folder in which the cells of this run share their choices of tuning.
        self._own_tuning = str(choices or self._folder / "tuning")
        #: The folder in which they find the candidates that another cell has compiled.
        self._candidates = str(self._folder / "candidates")
        #: The folder in which each job keeps its compiled program, since its latencies may be taken again.
        self._programs = self._folder / "programs"
        #: The outcomes of jobs whose program is kept, and the jobs among them whose latencies another process is to take again.
        self._measured: dict[Job, Outcome] = {}
        self._disturbed: set[Job] = set()
        server = Server(self._environ, preload, slot.cores[0], launcher)
        self._waiting = [
            Job(cell, self._settings_of(cell, settings, known_code.get(cell.cell_id, ""), str(number)), server)
            for number, cell in enumerate(cells)
        ]
        self.neighbours: Sequence[Neighbour] = ()
        #: The models that a cell has tuned for all of the model's cells on a server, whose compiler may be another one.
        self._tuned: set[tuple[Server, TunedModel]] = set()
        self._memory = MemoryPlan(slot.memory_bytes, memory_of)
        #: Takes a line that says why a cell is measured again.
        self.notice: Callable[[str], None] = lambda _: None
        self._cores = SharedCores(slot.cores)
        self._active: list[CellProcess] = []
        self._jobs: dict[CellProcess, Job] = {}
        self._queue: list[CellProcess] = []
        self._holders: set[CellProcess] = set()
        #: Seconds for which cells had the device alone since the last turn of the cells that load or run their models; the time
        #: when a cell last began or ended to have it alone; and the time when the turn of the other cells ends.
        self._alone_s, self._alone_at, self._turn_until = 0.0, 0.0, 0.0
        #: When a cell last held the device, as far as this process has seen.
        self._held_at = 0.0
        #: The time of the next look through the waiting cells after none of them could start.
        self._look_again_at = 0.0
        #: How often cells were sent back, to leave their memory to others.
        self._sent_back: Counter[str] = Counter()
        #: Cells that ran out of memory beside others, to be measured again alone.
        self._alone: list[Job] = []
        #: Cells that were disturbed: all other cells are stopped while they are measured again.
        self._in_quiet: set[Job] = set()
        #: One check for each server: the eager forms of two sides may differ.
        self._disturbance = defaultdict[Server, DisturbanceCheck[Job]](lambda: DisturbanceCheck(self.keeps_slow_host))
        self._ran_beside_others: set[CellProcess] = set()
        self._servers = [server]
        #: Seconds for which the device was held, by purpose.
        self.held_s: Counter[str] = Counter()

    def _settings_of(self, cell: Cell, settings: Settings, known_code: str, name: str) -> Settings:
        """Return the settings of a cell.

        A cell that compiles a second time finds all kernels in its own caches, so that it shares no candidates. On a CPU, where
        few programs tune and no measurement is repeated, cells of a run share no choices and keep no program.
        """
        if not is_accelerator(cell.device):
            return replace(settings, known_code=known_code)
        tuning, compiled = settings.shared_tuning or self._own_tuning, settings.compiled or str(self._programs / name)
        kept = replace(settings, compiled=compiled, candidates="" if settings.warm_compile else self._candidates)
        return replace(kept, known_code=known_code, shared_tuning=tuning, compile_cores=self._compile_cores(cell))

    def _compile_cores(self, cell: Cell) -> tuple[int, ...]:
        """Return all workers' cores for one of the longest cells, else none: a night may end with it while other workers idle."""
        is_one_of_many = is_long(cell) and self._slot.places > 1
        return tuple(core for cores in self._slot.cores for core in cores) if is_one_of_many else ()

    @property
    def busy(self) -> bool:
        """Return whether any job waits or is under way."""
        return bool(self._waiting or self._active or self._alone)

    @property
    def active(self) -> Iterable[CellProcess]:
        """The processes of the cells that are under way."""
        return self._active

    @property
    def free_places(self) -> int:
        """The number of jobs that could be added and begin at once if there are memory and cores for them."""
        return self._slot.places - len(self._active) - len(self._waiting) - len(self._alone)

    @property
    def busy_cores(self) -> int:
        """The number of cores of the workers at work; a worker without cores of its own counts as all cores."""
        used = self._slot.cores[: len(self._active)]
        return sum(len(cores) or len(os.sched_getaffinity(0)) for cores in used)

    def stage_of(self, job: Job) -> Stage | None:
        """Return the stage that a job is in; None if it is not under way."""
        return next((process.stage for process, at in self._jobs.items() if at is job), None)

    def has(self, job: Job) -> bool:
        """Return whether a job waits or is under way, so that an outcome of it will come."""
        return job in self._waiting or job in self._alone or job in self._jobs.values()

    def add(self, job: Job) -> None:
        """Add one more job to measure."""
        self._waiting.append(job)
        self._look_again_at = 0.0
        if job.server not in self._servers:
            self._servers.append(job.server)

    @property
    def soon_s(self) -> float:
        """Seconds until the next look at events that no descriptor announces."""
        return 0.01 if self._queue else 0.1

    def prepare(self) -> None:
        """Start the launchers of the waiting jobs; they import in the background."""
        for job in (*self._waiting, *self._alone):
            job.server.prepare()

    def give_up(self) -> None:
        """Drop the waiting jobs, so that no further cell starts."""
        self._waiting.clear()
        self._alone.clear()

    def start_waiting(self) -> None:
        """Start waiting jobs on the free workers. Raises `LauncherError` once too many fork servers were lost."""
        self.prepare()
        while (cores := self._place()) is not None and self._may_start() and (job := self._choose()) is not None:
            try:
                self._begin(job, cores)
            except LauncherError:
                # The launcher died during the request: `turn` sees that it is lost and starts another one.
                self._waiting.insert(0, job)
                return

    def _place(self) -> Sequence[int] | None:
        """Return the cores on which a further cell may start now, None if there are none."""
        has_place = len(self._active) < self._slot.places
        return self._cores.next_free(self._in_need_of_cores()) if has_place else None

    def _begin(self, job: Job, cores: Sequence[int]) -> None:
        server = job.server
        assert server.launcher is not None  # noqa: S101 - prepared before
        self._folder.mkdir(mode=0o700, exist_ok=True)
        settings = job.settings
        if job in self._disturbed:
            settings = replace(settings, passed_code=self._measured[job].measurement.code_id or "")
        else:
            self._forget_program(job)  # of an attempt that ended early
        process = CellProcess(job.cell, settings, server.launcher, server.environ, cores, self._folder)
        self._jobs[process] = job
        self._active.append(process)
        self._cores.take(process)
        if len(self._active) > 1:
            self._ran_beside_others.update(self._active)

    def turn(self) -> Iterator[tuple[Job, Outcome]]:
        """Read the messages of the cells, yield the outcomes of cells that are done, and grant the device to the next cells."""
        for server in self._servers:
            if server.is_lost:
                self._begin_again(server)
        for process in list(self._active):
            process.pump()
            if process.stage not in _BEFORE_TUNED:
                self._tuned.add((self._jobs[process].server, tuned_model(process.cell)))
            if process.asks and process not in self._queue:
                self._queue.append(process)
            if process.finished:
                beside_others, job = process in self._ran_beside_others, self._jobs[process]
                outcome = self._end(process)
                self._check_device(outcome)
                self._memory.learn(outcome.measurement)
                if self._memory.grow(outcome.measurement, process.promised or self._slot.memory_bytes):
                    self._waiting.insert(0, job)
                    self.notice(f"{process.cell} needs more memory than it was promised: it starts again with more")
                elif _lacked_room(outcome) and beside_others:
                    # Beside other cells this proves nothing: they may have taken the memory.
                    self._alone.append(job)
                    self.notice(f"{process.cell} lacked memory beside others: it is measured again alone")
                elif (whole := self._completed(job, outcome)) is None:
                    self._waiting.append(job)
                else:
                    self._judge(job, whole)
                    yield job, whole
        self._hand_over()
        self._untangle()

    def _completed(self, job: Job, outcome: Outcome) -> Outcome | None:
        """Return an outcome, merged into the earlier one if it took latencies again; None if the cell must begin anew."""
        if job not in self._disturbed:
            return outcome
        self._disturbed.remove(job)
        return self._measured.pop(job).timed_again(outcome)

    def _judge(self, job: Job, outcome: Outcome) -> None:
        """Queue disturbed jobs again, this job or an earlier one, and keep only the programs that may be needed for that."""
        disturbance = self._disturbance[job.server]
        again = disturbance.judge(outcome.measurement, job)
        if outcome.timed:
            self._measured[job] = replace(outcome, code={}, texts={})
        else:
            self._forget_program(job)
        self._disturbed.update(one for one in self._measured.keys() & again if one.settings.compiled)
        for one in self._measured.keys() - self._disturbed:
            if not self._disturbance[one.server].may_be_repeated(one):
                self._forget_program(one)
        self._in_quiet.update(again)
        self._waiting += again
        for one in filter(disturbance.is_spared, list(self._waiting)):
            self._waiting.remove(one)
            self._disturbed.discard(one)
            self._forget_program(one)

    def _forget_program(self, job: Job) -> None:
        """Remove the compiled program of a job if it is kept for this run alone."""
        self._measured.pop(job, None)
        if Path(job.settings.compiled).parent == self._programs:
            shutil.rmtree(job.settings.compiled, ignore_errors=True)

    def close(self) -> None:
        """End every process and remove their folders, even if a signal interrupts this method."""
        with ExitStack() as stack:
            for _ in range(2):  # a second time, in case a signal interrupts the first
                stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            for neighbour in self.neighbours:
                stack.callback(neighbour.go_on)
            for server in self._servers:
                if server.launcher:
                    stack.callback(server.launcher.close)
                    server.launcher = None
            for process in list(self._active):
                stack.callback(self._end, process)

    def _choose(self) -> Job | None:
        if not self._waiting:
            is_next = self._alone and not self._active and self._alone[0].server.is_ready
            return self._alone.pop(0) if is_next else None
        now = time.monotonic()
        if now < self._look_again_at:
            return None
        if (found := self._find_startable()) is not None:
            return self._waiting.pop(found)
        self._look_again_at = now + _LOOK_S
        return None

    def _find_startable(self) -> int | None:
        """Return the index of the first waiting job whose cell may start, or None.

        Room is kept for the first cell that does not fit, so that smaller cells do not replace each other before it until the
        end of the night. No room is kept for a cell that takes more than half of the memory: too few cells would fit beside it.
        """
        fits, kept_free = self._room_for_more(), 0.0
        for place, job in enumerate(self._waiting):
            if not job.server.is_ready or self._is_tuned_now(job):
                continue
            if fits(job.cell, kept_free):
                return place
            peak = self._memory.most(job.cell, is_checked=not self._is_large(job.cell))
            if not kept_free and peak <= self._slot.memory_bytes / 2 and not self._waits_for_large(job.cell):
                kept_free = peak
        return None

    def _is_large(self, cell: Cell) -> bool:
        """Return whether a cell needs more than half of the memory at its peak, as models of a billion weights do in their check.

        If the checks of such cells do not fit beside the other cells, only one of them is under way at a time. Until that cell
        has compiled, it counts with the memory of its calls, without its check. After that no cell starts that does not fit
        beside its peak, and its check waits until enough cells have ended. Without this rule such cells would start when no other
        cell is left, and would have the GPU for themselves at the end of a night.
        """
        return self._memory.most(cell) > self._slot.memory_bytes / 2

    def _waits_for_large(self, cell: Cell) -> bool:
        return self._is_large(cell) and any(self._is_large(one.cell) for one in self._active)

    def _peak(self, process: CellProcess) -> float:
        """Return the memory that other cells must leave to an active cell now; for an early large cell without its check."""
        is_early = process.stage in _BEFORE_TUNED and self._is_large(process.cell)
        asked = CONTEXT_BYTES + max(
            self._in_check(process, process.most_asked), self._needs(process) if process.asks else 0
        )
        return max(self._memory.most(process.cell, is_checked=not is_early), asked)

    def _whole_peak(self, process: CellProcess) -> float:
        """Return the peak memory of an active cell, its check included."""
        return max(self._peak(process), self._memory.most(process.cell))

    def _is_tuned_now(self, job: Job) -> bool:
        """Return whether another cell of the model on the job's server is still tuning, whose choices this job will take.

        Two cells that tune at a time choose by chance among nearly equal configurations, and no commit made the difference.
        """
        if not job.settings.shared_tuning or (job.server, model := tuned_model(job.cell)) in self._tuned:
            return False
        return any(one.server is job.server and tuned_model(one.cell) == model for one in self._jobs.values())

    def _room_for_more(self) -> Callable[[Cell, float], bool]:
        """Return a function that says whether one more cell fits into the memory, while bytes are kept free for another one.

        The peaks of the cell and of each active cell, one at a time, must fit beside the memory that all other cells keep.
        """
        rests = [max(self._rests(one), self._memory.keeps(one.cell) or 0.0) for one in self._active]
        all_rest = sum(rests)

        def most_rise(peaks: Iterable[float]) -> float:
            return max((peak - rest for peak, rest in zip(peaks, rests, strict=True)), default=0.0)

        soon, ever = most_rise(map(self._peak, self._active)), most_rise(map(self._whole_peak, self._active))

        def fits(cell: Cell, kept_free: float) -> bool:
            if not self._active or not is_accelerator(cell.device):
                return True
            rest = self._memory.keeps(cell) or CONTEXT_BYTES + self._memory.needs(cell, Stage.LOAD_MODEL)
            room = self._slot.memory_bytes - all_rest - rest
            if max(kept_free, ever, self._memory.most(cell) - rest) <= room:
                return True
            if self._waits_for_large(cell):
                return False
            return max(kept_free, soon, self._memory.most(cell, is_checked=not self._is_large(cell)) - rest) <= room

        return fits

    def _rests(self, process: CellProcess) -> float:
        """Return the memory that a cell keeps between its calls; before its model is loaded, the memory that loading takes."""
        if not is_accelerator(process.cell.device):
            return 0.0
        is_loaded = process.stage not in (Stage.START, Stage.RESOLVE_CONFIG, Stage.LOAD_MODEL)
        weights = 0.0 if is_loaded else self._memory.needs(process.cell, Stage.LOAD_MODEL)
        return CONTEXT_BYTES + max(process.keeps, weights)

    def _free_bytes(self, without: CellProcess | None = None) -> float:
        """Return the memory that is neither kept by nor promised to an active cell other than `without`."""
        return self._slot.memory_bytes - sum(self._taken(one) for one in self._active if one is not without)

    def _taken(self, process: CellProcess) -> float:
        promised = self._needs(process) if process.holds else 0.0
        return max(process.keeps, promised) + (CONTEXT_BYTES if is_accelerator(process.cell.device) else 0.0)

    def _needs(self, process: CellProcess) -> float:
        if not is_accelerator(process.cell.device):
            return 0.0
        if process.needs is not None:
            return self._in_check(process, process.needs)
        if process.stage in _UNKNOWN:
            return self._memory.needs(process.cell, process.stage)
        return process.keeps + _TUNING_BYTES

    def _in_check(self, process: CellProcess, asked: float) -> float:
        """Return the memory that a cell asks for; in its check, the memory that the check is known to take.

        For a reference a cell asks for as much as eager takes, and if that is not enough for twice and four times as much, which
        may be more than it then takes. Cells that keep copies of their outputs and wait for so much would block each other.
        """
        known = self._memory.checks(process.cell) if process.stage is Stage.CORRECTNESS else None
        return asked if known is None else max(known, process.keeps)

    def _has_room(self, process: CellProcess) -> bool:
        needs = max(self._needs(process), process.keeps) + (
            CONTEXT_BYTES if is_accelerator(process.cell.device) else 0.0
        )
        return needs <= self._free_bytes(process) or process.keeps >= self._needs(process)

    def _fits_alone(self, process: CellProcess) -> bool:
        return max(self._needs(process), process.keeps) + CONTEXT_BYTES <= self._slot.memory_bytes

    def _untangle(self) -> None:
        """Send a cell back if no cell that asks for the device has room beside the memory that the other cells keep.

        Of the waiting cells the one that began last is sent back, but not the one that has waited longest: that cell goes on
        when others leave. If no cell can be sent back and all cells wait, estimates may be too high: the first one tries.
        """
        now = time.monotonic()
        if self._holders or not self._queue:
            self._held_at = now
            return
        all_wait = len(self._queue) == len(self._active)
        if not all_wait and now - self._held_at < _STUCK_S:
            return  # a cell that compiles may end
        first = max(filter(self._fits_alone, self._queue), key=lambda process: process.asked_s, default=None)
        others = [
            process
            for process in self._queue
            if process is not first and self._sent_back[process.cell.cell_id] < _MOST_SENT_BACK
        ]
        if first and others:
            self._held_at = now
            self._send_back(max(others, key=lambda process: process.began))
        elif all_wait:
            self._give(self._queue.pop(0))

    def _send_back(self, process: CellProcess) -> None:
        cell, job = process.cell, self._jobs[process]
        self._sent_back[cell.cell_id] += 1
        self._memory.note(cell, process.keeps, self._in_check(process, process.most_asked))
        self._end(process)
        self._waiting.insert(0, job)
        self.notice(f"{cell} has no room beside what others keep of the memory: it starts again later")

    def _is_kept_for_another(self, process: CellProcess) -> bool:
        """Return whether memory is kept free for a cell that has waited long, and this cell does not fit beside it.

        Without that, small calls would take each other's place for ever. Memory is kept free only for a cell that fits beside
        the memory that all other cells keep.
        """
        for other in self._queue:
            if other is process or other.asked_s < _LONG_S or self._has_room(other):
                continue
            rests = sum(self._rests(one) for one in self._active if one is not other)
            more = self._needs(other) - other.keeps
            if self._needs(other) + CONTEXT_BYTES + rests > self._slot.memory_bytes:
                continue
            if max(self._needs(process), process.keeps) + CONTEXT_BYTES + more > self._free_bytes(process):
                return process.asked_s <= other.asked_s
        return False

    def _promised(self, process: CellProcess) -> float | None:
        """Return the bytes that are promised to a cell that cannot know its needs: all of them if it is the only cell.

        In its check a cell gets the bytes that the check is known to take, so that it does not try with less.
        """
        if not is_accelerator(process.cell.device):
            return None
        if process.stage is Stage.CORRECTNESS:
            return self._memory.checks(process.cell)
        if process.needs is not None or process.stage not in _UNKNOWN:
            return None
        is_only = self._slot.places == 1 or (len(self._active) == 1 and not self._waiting)
        return self._slot.memory_bytes if is_only else max(self._needs(process), process.keeps)

    def _may_start(self) -> bool:
        # Starting a process is work on the machine that must be still.
        return not any(self._stops_all(process, process.purpose) for process in self._holders)

    def _check_device(self, outcome: Outcome) -> None:
        measured = outcome.measurement
        if not is_accelerator(measured.cell.device) or measured.status in _SURELY_NOT_THE_DEVICE:
            return
        ended_by_force = measured.status in (Status.CRASHED, Status.TIMEOUT)
        if ended_by_force or is_suspect(measured.failure.message if measured.failure else ""):
            device = measured.cell.device
            reason = why_unhealthy(self._environ, device)
            if reason and why_unhealthy(
                self._environ, device
            ):  # asked twice: a driver that resets the device needs a moment
                raise LostDeviceError(f"the GPU no longer answers ({reason}); it was lost in or before {measured.cell}")

    def _begin_again(self, server: Server) -> None:
        """Put the jobs of a lost launcher back first in the queue, for a new launcher: their processes ended with the old one."""
        launcher, server.launcher = server.launcher, None
        lost = {process: job for process, job in self._jobs.items() if job.server is server}
        for process in lost:
            self._end(process)
        if launcher:
            launcher.close()
        server.require_another()
        self._waiting[:0] = lost.values()

    def _hand_over(self) -> None:
        for process in [process for process in self._holders if not process.holds]:
            self._holders.discard(process)
            self._note_end(process)
            if process.purpose != "device" and self._slot.quiet_cores and process in self._active:
                self._cores.take_back(process)
        # Cells that began first go first: the longest cells begin a night, and other cells wait for their choices.
        self._queue.sort(key=self._order)
        for process in list(self._queue):
            may_use = not self._held_alone() and not self._waits_for_turn(process)
            has_room = process.is_leaving or (self._has_room(process) and not self._is_kept_for_another(process))
            if may_use and has_room:
                self._queue.remove(process)
                self._give(process)
        self._share_cores()
        if not self._held_alone():
            for neighbour in self.neighbours:
                neighbour.go_on()

    def _held_alone(self) -> CellProcess | None:
        # Not even a measurement interrupts a cell that tunes: a timing that is stopped in the middle is wrong.
        return next((process for process in self._holders if process.purpose != "device"), None)

    def _able(self) -> list[CellProcess]:
        """Return the processes that are not stopped for the cell that has the device alone."""
        alone = self._held_alone()
        if alone is None:
            return list(self._active)
        all_stand = self._stops_all(alone, alone.purpose)
        return [one for one in self._active if one is alone or not (all_stand or one.holds)]

    def _in_need_of_cores(self) -> list[CellProcess]:
        """Return the processes that could run on cores of the workers now, in the order in which they get cores.

        A process that asks for the device waits, and one that has it alone runs on the cores that are kept free for it. Those
        that hold the device beside others go first: they are stopped as soon as a cell has it alone, and leave all cores.
        """
        elsewhere = self._held_alone() if self._slot.quiet_cores else None
        found = (one for one in self._able() if not one.asks and one is not elsewhere)
        return sorted(found, key=lambda one: (not one.holds, *self._order(one)))

    def _order(self, process: CellProcess) -> tuple[int, float]:
        return self._jobs[process].rank, process.began

    def _share_cores(self) -> None:
        """Let the processes go on that have cores or need none, and stop those for which no cores are left."""
        needy = self._in_need_of_cores()
        running, others = needy[: len(self._cores)], needy[len(self._cores) :]
        stand_together(others)
        self._cores.give(running)
        for process in self._able():
            if process not in others:
                process.go_on()

    def _waits_for_turn(self, process: CellProcess) -> bool:
        """Return whether a process asks for the device alone during the turn of the cells that load or run their models."""
        return process.asks != "device" and bool(self._holders) and time.monotonic() < self._turn_until

    def _note_end(self, process: CellProcess) -> None:
        """Add the time for which a process had the device alone; after `_ALONE_S` begin the turn of the other cells."""
        if process.purpose == "device":
            return
        now = time.monotonic()
        self._alone_s, self._alone_at = self._alone_s + now - self._alone_at, now
        if self._alone_s >= _ALONE_S:
            self._alone_s, self._turn_until = 0.0, now + _TURN_S

    def _give(self, process: CellProcess) -> None:
        if process.asks != "device":
            now = time.monotonic()
            if not self._holders or now - self._alone_at >= _TURN_S:
                self._alone_s = 0.0  # no cell is stopped, or all have just run for as long as a turn
            self._alone_at = now
            all_stand = self._stops_all(process, process.asks)
            others = [other for other in self._active if other is not process]
            stand_together(other for other in others if all_stand or other.holds)
            for neighbour in self.neighbours:
                neighbour.stand() if all_stand else neighbour.go_on()
            if self._slot.quiet_cores:
                process.move(self._slot.quiet_cores)
        process.go_on()
        self._holders.add(process)
        known = self._disturbance[self._jobs[process].server]
        eager_ms = known.eager_ms(process.cell)
        process.grant(known.idle_ms, self._slot.memory_bytes, eager_ms, self._promised(process))

    def _stops_all(self, process: CellProcess, purpose: str | None) -> bool:
        if purpose in (None, "", "device"):
            return False
        is_quiet = self._jobs.get(process) in self._in_quiet
        return not self._slot.quiet_cores or is_quiet or purpose in self.all_stand

    def _end(self, process: CellProcess) -> Outcome:
        if process in self._queue:
            self._queue.remove(process)
        self._active.remove(process)  # first, so that `close` does not repeat what a signal interrupts
        self._cores.leave(process)
        self._jobs.pop(process, None)
        outcome = process.close()
        self.held_s.update(process.held_s)
        self._ran_beside_others.discard(process)
        if process in self._holders:
            self._holders.discard(process)
            self._note_end(process)
        return outcome


def _lacked_room(outcome: Outcome) -> bool:
    """Return whether a cell ran out of memory, or was checked less strictly because its float64 reference did."""
    return outcome.measurement.status is Status.OOM or outcome.lacked_room
