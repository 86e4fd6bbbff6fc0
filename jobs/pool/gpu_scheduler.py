"""One device and the workers that share it: who may use it, who stands still, what starts next.

Measuring is a small part of a cell; most of it is importing and compiling on the CPU. Each worker has cores of its own.
A cell asks for the device for one of three purposes:

- `device`: to run its model at length. Several cells may at once; only a warm call is timed.
- `tune`: to let Inductor time candidates. All processes of other cells are stopped with SIGSTOP: beside
  their compilers Inductor rejected faster library calls (docs/results.md).
- `measure`: the same, granted once no cell holds the device. The measuring cell waits until a probe shows that the device
  is idle, since a stopped process leaves kernels queued (`collector.machine.idle`).

The time for which a cell was stopped or waited is subtracted from its compile time.

A measurement that was disturbed after all is repeated alone (`jobs.pool.disturbance`).
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from collector.errors import ExpectedError
from collector.machine.health import is_suspect, why_unhealthy
from collector.process.cell_process import CellProcess
from collector.process.launcher import Launcher, LauncherError, Preload
from collector.process.outcome import Outcome
from collector.process.tokens import PREFIX
from collector.settings import Settings
from collector.vocabulary import Cell, Status
from jobs.pool.disturbance import DisturbanceCheck

_SURELY_NOT_THE_DEVICE = frozenset({Status.PASS, Status.CONFIG_ERROR, Status.UNAVAILABLE, Status.FAIL_ACCURACY})
#: Fork servers that a scheduler may lose in a run before it gives up.
_SERVERS = 3

#: Bytes of device memory that a cell needs, or None if that is not known.
MemoryOf = Callable[[Cell], float | None]


class LostDeviceError(ExpectedError):
    """A GPU stopped answering: what was measured before is good, the rest of the night would fail for its sake."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """A device and the cores that belong to it: one set of cores a worker, each as large as the others.

    `variables` are added to the environment of every process, `memory_bytes` is what cells on this device may need
    together.
    """

    cores: Sequence[Sequence[int]]
    variables: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: float = float("inf")


class GpuScheduler:
    """Measures cells on one device; `turn` yields outcomes in the order in which they come.

    `known_code` has by `cell_id` the code that a cell need not be measured with (`Settings.known_code`).
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        settings: Settings,
        slot: DeviceSlot,
        environ: Mapping[str, str],
        preload: Preload | None = None,
        memory_of: MemoryOf = lambda _: None,
        launcher: Launcher | None = None,
        known_code: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._waiting = list(cells)
        self._settings, self._slot = settings, slot
        self._known_code = known_code
        self._environ = {**environ, **slot.variables}
        #: Holds the folders of the cells. `close` removes it; its name is known before it is made, so that no signal can
        #: come between the two.
        self._folder = Path(tempfile.gettempdir(), PREFIX + secrets.token_hex(8))
        self._preload, self._memory_of = preload, memory_of
        self._free = [list(cores) for cores in slot.cores]
        self._active: dict[CellProcess, list[int]] = {}
        self._queue: list[CellProcess] = []
        self._holders: set[CellProcess] = set()
        #: Cells that ran out of memory beside others, or were disturbed, to be measured again alone.
        self._alone: list[Cell] = []
        self._disturbance = DisturbanceCheck()
        self._ran_beside_others: set[CellProcess] = set()
        self._launcher = launcher if launcher and not launcher.lost else None
        self._servers = int(self._launcher is not None)
        #: Seconds for which the device was held, by purpose.
        self.held_s: Counter[str] = Counter()

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._waiting or self._active or self._alone)

    @property
    def active(self) -> Iterable[CellProcess]:
        """The processes of the cells that are under way."""
        return self._active

    @property
    def soon_s(self) -> float:
        """Seconds until something is due that no descriptor announces."""
        return 0.01 if self._queue else 0.1

    def prepare(self) -> None:
        """Starts the process that starts the others; it imports in the background."""
        if self._launcher is None and (self._waiting or self._alone):
            self._launcher = Launcher(self._environ, self._preload, self._slot.cores[0])
            self._servers += 1

    def give_up(self) -> None:
        """Starts no further cell."""
        self._waiting.clear()
        self._alone.clear()

    def start_waiting(self) -> None:
        """Fills the free workers. Raises `LauncherError` once too many fork servers were lost."""
        self.prepare()
        if self._launcher is None or not self._launcher.is_ready:
            return
        while self._free and not self._held_alone() and (cell := self._choose()) is not None:
            try:
                self._begin(cell)
            except LauncherError:
                # The server died while it was asked: `turn` sees that it is lost and starts another.
                self._waiting.insert(0, cell)
                return

    def _begin(self, cell: Cell) -> None:
        assert self._launcher is not None  # noqa: S101 - prepared before
        self._folder.mkdir(mode=0o700, exist_ok=True)
        settings = replace(self._settings, known_code=self._known_code.get(cell.cell_id, ""))
        process = CellProcess(cell, settings, self._launcher, self._environ, self._free[0], self._folder)
        self._active[process] = self._free.pop(0)
        if len(self._active) > 1:
            self._ran_beside_others.update(self._active)

    def turn(self) -> Iterator[Outcome]:
        """Reads the messages of the cells, ends those that are done, and grants the device to the next."""
        if self._launcher and self._launcher.lost:
            self._begin_again()
        for process in list(self._active):
            process.pump()
            if process.asks and process not in self._queue:
                self._queue.append(process)
            if process.finished:
                beside_others = process in self._ran_beside_others
                outcome = self._end(process)
                self._check_device(outcome)
                if _lacked_room(outcome) and beside_others:
                    # Beside others it proves nothing: the memory may have been theirs.
                    self._alone.append(process.cell)
                else:
                    self._alone += self._disturbance.judge(outcome.measurement)
                    yield outcome
        self._hand_over()

    def close(self) -> None:
        """Ends every process and removes their folders, also where a signal interrupts it."""
        with ExitStack() as stack:
            for _ in range(2):  # the second one where the first was interrupted
                stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            if self._launcher:
                stack.callback(self._launcher.close)
                self._launcher = None
            for process in list(self._active):
                stack.callback(self._end, process)

    def _choose(self) -> Cell | None:
        if not self._waiting:
            return self._alone.pop(0) if self._alone and not self._active else None
        fitting = next((index for index, cell in enumerate(self._waiting) if self._fits(cell)), None)
        return None if fitting is None else self._waiting.pop(fitting)

    def _fits(self, cell: Cell) -> bool:
        taken = sum(self._needs(process.cell) for process in self._active)
        return not self._active or self._needs(cell) + taken <= self._slot.memory_bytes

    def _needs(self, cell: Cell) -> float:
        # A cell that was never measured may take an even share; if it needs more, it is measured again alone.
        known = self._memory_of(cell)
        return self._slot.memory_bytes / len(self._slot.cores) if known is None else known

    def _check_device(self, outcome: Outcome) -> None:
        measured = outcome.measurement
        if measured.cell.device != "cuda" or measured.status in _SURELY_NOT_THE_DEVICE:
            return
        ended_by_force = measured.status in (Status.CRASHED, Status.TIMEOUT)
        if ended_by_force or is_suspect(measured.failure.message if measured.failure else ""):
            reason = why_unhealthy(self._environ)
            if reason and why_unhealthy(self._environ):  # asked twice: a driver that resets the device needs a moment
                raise LostDeviceError(f"the GPU no longer answers ({reason}); it was lost in or before {measured.cell}")

    def _begin_again(self) -> None:
        """A lost server takes its children with it: they are measured again under a new one."""
        assert self._launcher is not None  # noqa: S101
        again = [process.cell for process in self._active]
        self.close()
        if self._servers >= _SERVERS:
            raise LauncherError(f"{self._servers} fork servers were lost in one run: `resume` goes on")
        self._waiting[:0] = again

    def _hand_over(self) -> None:
        self._holders = {process for process in self._holders if process.holds}
        # Measurements go first: they are short and the last thing a cell needs before its worker is free again.
        self._queue.sort(key=lambda process: process.asks != "measure")
        for process in list(self._queue):
            if self._may_hold(process):
                self._queue.remove(process)
                self._give(process)
            elif process.asks == "measure":
                break
        if not self._held_alone():
            self._resume_all()

    def _held_alone(self) -> bool:
        # Nothing new starts meanwhile: a start is work on the very machine that must be still.
        return any(process.purpose != "device" for process in self._holders)

    def _may_hold(self, process: CellProcess) -> bool:
        # Not even a measurement interrupts who tunes: a timing stopped in the middle comes back wrong.
        return not self._held_alone() and not (process.asks == "measure" and self._holders)

    def _give(self, process: CellProcess) -> None:
        if process.asks != "device":
            for other in self._active:
                if other is not process:
                    other.stand()
        process.go_on()
        self._holders.add(process)
        process.grant(self._disturbance.idle_ms)

    def _resume_all(self) -> None:
        for process in self._active:
            process.go_on()

    def _end(self, process: CellProcess) -> Outcome:
        if process in self._queue:
            self._queue.remove(process)
        self._free.append(self._active.pop(process))  # first: what a signal interrupts here, `close` does not repeat
        outcome = process.close()
        self.held_s.update(process.held_s)
        self._ran_beside_others.discard(process)
        self._holders.discard(process)
        return outcome


def _lacked_room(outcome: Outcome) -> bool:
    """Whether a cell ran out of memory, or was checked less strictly since its float64 reference did."""
    return outcome.measurement.status is Status.OOM or outcome.lacked_room
