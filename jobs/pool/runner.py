"""Measure a plan on all devices of a host: every outcome is a line of the bundle, on disk before the next one is taken."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collector.bundle import BundleWriter, RunHeader
from collector.device import is_accelerator
from collector.machine.environment import environment_id, extract_testbed
from collector.masking import mask_own
from collector.process.cell_process import CellProcess
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Measurement
from jobs import tool_version
from jobs.plan.cost import MemoryOf
from jobs.plan.spared_cells import Known, Work, copy_for
from jobs.pool.device_slots import holding_slots, off_quiet_cores
from jobs.pool.gpu_scheduler import GpuScheduler, Job, LostDeviceError, Server
from jobs.pool.testbeds import Testbed, preload_for
from jobs.pool.usage import Usage, UsageMeter
from jobs.requested_options import RequestedOptions, RunNames, job_url

#: Seconds without an outcome after which a run says what its cells are doing.
_SILENCE_S = 120.0


class Pool:
    """A group of schedulers that run side by side; `run` yields (index of the scheduler, outcome) as the outcomes come."""

    def __init__(
        self,
        schedulers: Sequence[GpuScheduler],
        budget_s: float = float("inf"),
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._schedulers, self._notice = list(schedulers), notice
        for scheduler in self._schedulers:
            scheduler.notice = notice
        self._deadline = time.monotonic() + budget_s
        self._heard_at = time.monotonic()

    def run(self) -> Generator[tuple[int, Outcome]]:
        """Measure every cell and yield its outcome; no cell starts after the budget. Closing the iterator ends all processes.

        Raises:
            LauncherError: the processes that start the cells keep dying.
        """
        with ExitStack() as stack:
            for scheduler in self._schedulers:
                stack.callback(scheduler.close)
            if time.monotonic() < self._deadline:
                for scheduler in self._schedulers:
                    scheduler.prepare()
            try:
                while any(scheduler.busy for scheduler in self._schedulers):
                    yield from ((index, outcome) for index, _, outcome in self.turn())
            except KeyboardInterrupt:
                self.tell_under_way("under way:")
                raise

    def turn(self) -> Iterator[tuple[int, Job, Outcome]]:
        """Start jobs that can start, wait a moment, and yield for each outcome the scheduler's index, the job and the outcome."""
        for scheduler in self._schedulers:
            if time.monotonic() > self._deadline:
                scheduler.give_up()
            if scheduler.busy:
                scheduler.start_waiting()
        self._wait()
        for index, scheduler in enumerate(self._schedulers):
            for job, outcome in scheduler.turn():
                self._heard_at = time.monotonic()
                yield index, job, outcome
        self._break_silence()

    def tell_under_way(self, head: str) -> None:
        """Report the head, then a line for each cell under way that says what the cell is doing."""
        words = [process.describe() for scheduler in self._schedulers for process in scheduler.active]
        for line in (head, *(f"  {line}" for line in words or ["nothing"])):
            self._notice(line)

    def _break_silence(self) -> None:
        if time.monotonic() - self._heard_at > _SILENCE_S:
            self._heard_at = time.monotonic()
            self.tell_under_way(f"nothing ended for {_SILENCE_S:.0f} s; under way:")

    def _wait(self) -> None:
        owners: dict[Any, CellProcess] = {
            descriptor: process
            for scheduler in self._schedulers
            for process in scheduler.active
            for descriptor in process.descriptors
        }
        ready = wait(owners, timeout=min(scheduler.soon_s for scheduler in self._schedulers))
        # The pipes of a process that has gone are readable for ever: a short sleep keeps this loop from spinning.
        if len({owners[descriptor] for descriptor in ready}) < len(ready):
            time.sleep(0.002)


Listener = Callable[[Measurement], None]


def now() -> str:
    """Return the current time in UTC, in seconds, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_run_id() -> str:
    """Return a name for a run: the time it starts, and four random hexadecimal digits, so that two runners never share one."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def branch_of(torch_version: str) -> str:
    """Return the branch of a torch version: release/2.13 for 2.13.1+cu130, main for 2.14.0a0+git1234, nightly for a .dev one."""
    public = torch_version.partition("+")[0]
    if ".dev" in public:
        return "nightly"
    if "a0" in public:
        return "main"
    return "release/" + ".".join(public.split(".")[:2])


def make_header(
    environment: Mapping[str, Any], names: RunNames, requested: RequestedOptions | None = None
) -> RunHeader:
    """Return the header of a run on this machine; `requested` has the options that `resume` will need."""
    settings = requested.settings if requested else Settings()
    return RunHeader(
        run_id=new_run_id(),
        branch=str(mask_own(names.branch or branch_of(str(environment["torch"])))),
        commit=names.commit or str(environment["torch_git"]),
        testbed=extract_testbed(environment) | settings.testbed(),
        started_at=now(),
        repo=str(mask_own(names.repo)),
        trigger=names.trigger,
        label=str(mask_own(names.label)),
        commit_date=names.commit_date,
        commit_title=mask_own(names.commit_title),
        tool_version=tool_version(),
        # The commit may be named otherwise: `resume` compares torch itself.
        asked=requested.to_json() | {"torch_git": environment["torch_git"]} if requested else None,
        night=names.night,
        ci_url=str(mask_own(job_url())),
        branch_start=names.branch_start,
    )


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """The part of one device in a run: its testbed, its work, its bundle, and the known measurements by `cell_id`.

    The outcomes `carried` are recorded as they are, before any cell is measured.
    """

    testbed: Testbed
    work: Work
    writer: BundleWriter
    known: Mapping[str, Known] = field(default_factory=dict)
    carried: Sequence[Outcome] = ()

    @property
    def choices(self) -> Path:
        """The folder of the choices that its cells made while tuning, beside the bundle until nothing is left to `resume`."""
        return self.writer.path.with_suffix(".choices").absolute()  # a model may change the folder


@dataclass(frozen=True, slots=True)
class Result:
    """The closed bundles, how each device used the machine, and the error that ended the run before its time."""

    paths: list[Path]
    usages: list[Usage]
    lost: LostDeviceError | None = None


def measure_devices(
    runs: Sequence[DeviceRun],
    settings: Settings,
    listen: Listener,
    variables: Mapping[str, str],
    memory_of: MemoryOf = lambda *_: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Result:
    """Do the work of all devices side by side, and close their bundles; all have the same execution options.

    `variables` are added to each cell's environment; `memory_of` returns the bytes of device memory that a cell needs in a stage;
    `notice` takes a line that says why a cell is measured again, or what is under way if nothing has ended for some time.
    Cells that the budget or a lost GPU leaves out stay missing. After an interruption the bundles stay open, with all
    measurements until then, and `notice` takes a line on how each device was used.

    Raises:
        LauncherError: the processes that start the cells keep dying.
    """
    slots = [run.testbed.slot for run in runs]
    with holding_slots(slots), off_quiet_cores(slots):
        return _measure(runs, settings, listen, variables, memory_of, notice)


def _leave_open(runs: Sequence[DeviceRun], meters: Sequence[UsageMeter], notice: Callable[[str], None]) -> None:
    for run in runs:
        run.writer.abandon()
    for meter in meters:
        notice(f"used {meter.usage()}")


def _measure(
    runs: Sequence[DeviceRun],
    settings: Settings,
    listen: Listener,
    variables: Mapping[str, str],
    memory_of: MemoryOf,
    notice: Callable[[str], None],
) -> Result:
    lost = None
    meters = [meter_of(run.testbed) for run in runs]
    schedulers = [
        scheduler_for(run.testbed, run.work.cells, settings, variables, memory_of, run.known, run.choices)
        for run in runs
    ]
    left = [{cell.cell_id for cell in run.work.cells} for run in runs]
    try:
        for run in runs:
            _record_first(run, listen)
        with ExitStack() as stack:
            for meter in meters:
                stack.enter_context(meter)
            pool = Pool(schedulers, runs[0].testbed.execution.budget_s, notice)
            outcomes = stack.enter_context(closing(pool.run()))
            for index, outcome in outcomes:
                meters[index].took(outcome.measurement)
                cell_id = outcome.measurement.cell.cell_id
                left[index].discard(cell_id)
                if outcome.measurement.details.get("only") and (known := runs[index].known.get(cell_id)):
                    known.carry_over(outcome.measurement)
                duplicates = runs[index].work.duplicates.get(cell_id, ())
                for measurement in record(runs[index].writer, outcome, duplicates):
                    listen(measurement)
    except LostDeviceError as error:
        lost = error
    except BaseException:
        _leave_open(runs, meters, notice)
        raise
    usages = [meter.usage() for meter in meters]
    paths = [run.writer.close(now(), usage.to_json()) for run, usage in zip(runs, usages, strict=True)]
    for run, unfinished in zip(runs, left, strict=True):
        if not unfinished:
            shutil.rmtree(run.choices, ignore_errors=True)
    return Result(paths, usages, lost)


def _record_first(run: DeviceRun, listen: Listener) -> None:
    """Record the environment, the copies and the carried outcomes, before any cell is measured."""
    run.writer.environment(environment_id(run.testbed.environment), run.testbed.environment)
    for copy in run.work.copies:
        run.writer.measurement(copy)
        listen(copy)
    for outcome in run.carried:
        for measurement in record(run.writer, outcome):
            listen(measurement)


def meter_of(testbed: Testbed) -> UsageMeter:
    """Return a meter of a testbed's device and of the cores that belong to it."""
    slot = testbed.slot
    cores = [core for part in slot.cores for core in part] or sorted(os.sched_getaffinity(0))
    gpu = slot.variables.get("CUDA_VISIBLE_DEVICES") if is_accelerator(testbed.device) else None
    return UsageMeter(gpu, [*cores, *slot.quiet_cores], slot.places)


def server_for(testbed: Testbed, cells: Sequence[Cell], variables: Mapping[str, str]) -> Server:
    """Return a server that starts the processes of a testbed's cells, with the launcher of the testbed if it has one."""
    preload = preload_for(cells, testbed.device) if testbed.execution.start == "fork" else None
    environ = {**os.environ, **variables, **testbed.slot.variables}
    return Server(environ, preload, testbed.slot.cores[0], testbed.launcher)


def scheduler_for(
    testbed: Testbed,
    cells: Sequence[Cell],
    settings: Settings,
    variables: Mapping[str, str],
    memory_of: MemoryOf = lambda *_: None,
    known: Mapping[str, Known] = MappingProxyType({}),
    choices: Path | None = None,
) -> GpuScheduler:
    """Return the scheduler of a device's cells; nothing is started yet."""
    return GpuScheduler(
        cells,
        settings,
        testbed.slot,
        {**os.environ, **variables},
        preload_for(cells, testbed.device) if testbed.execution.start == "fork" else None,
        memory_of,
        testbed.launcher,
        {cell_id: item.code for cell_id, item in known.items()},
        choices,
    )


def record(writer: BundleWriter, outcome: Outcome, duplicates: Sequence[Cell] = ()) -> list[Measurement]:
    """Write one outcome: new environment, program and code first, then the measurement under each name. Return these."""
    measurement = outcome.measurement
    if outcome.environment and measurement.environment_id:
        writer.environment(measurement.environment_id, outcome.environment)
    if outcome.program and measurement.program_id:
        writer.program(measurement.program_id, outcome.program)
    if outcome.code:
        writer.code(outcome.code, outcome.texts)
    measurements = [measurement, *(copy_for(cell, measurement) for cell in duplicates)]
    for item in measurements:
        writer.measurement(item)
    return measurements
