"""Measures a plan: every outcome is a line of the bundle, on disk before the next one is taken."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector.bundle import BundleWriter, RunHeader
from collector.machine.environment import environment_id, extract_testbed
from collector.process.launcher import Launcher
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Measurement
from jobs.github.ci import job_url
from jobs.plan.duplicate_programs import Work, copy_for
from jobs.plan.tuning import tunes
from jobs.pool.device_pool import Pool
from jobs.pool.gpu_scheduler import Lane, LostDeviceError, MemoryOf, Place, unknown
from jobs.pool.preloading import preload_for

Listener = Callable[[Measurement], None]


@dataclass(frozen=True, slots=True)
class RunNames:
    """What a run is called. Without a commit it is the installed torch's own, without a branch the one it was built from.

    `branch_start` is the commit at which the branch left the main line, `night` what runs on several hosts share.
    """

    branch: str | None = None
    commit: str | None = None
    repo: str = "pytorch/pytorch"
    trigger: str = "adhoc"
    label: str = ""
    commit_date: str | None = None
    commit_title: str | None = None
    branch_start: str = ""
    night: str = ""


def now() -> str:
    """This second in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_run_id() -> str:
    """A run's name: the time it starts, and four random digits so that two runners never share one."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def branch_of(torch_version: str) -> str:
    """The branch a torch was built from, as far as its version tells: `release/2.13`, `nightly` or `main`.

    2.13.0 and 2.13.1+cu130 are releases, 2.14.0.dev20261101 is a nightly, 2.14.0a0+git1234 a build of main.
    """
    public = torch_version.partition("+")[0]
    if ".dev" in public:
        return "nightly"
    if "a0" in public:
        return "main"
    return "release/" + ".".join(public.split(".")[:2])


def make_header(
    environment: Mapping[str, Any], names: RunNames, version: str, asked: dict[str, Any] | None = None, night: str = ""
) -> RunHeader:
    """The first record of a run on this machine; `asked` is what `resume` will need, `night` what its runs share."""
    settings = Settings.from_json(asked["settings"]) if asked else Settings()
    return RunHeader(
        run_id=new_run_id(),
        branch=names.branch or branch_of(str(environment["torch"])),
        commit=names.commit or str(environment["torch_git"]),
        testbed=extract_testbed(environment) | settings.testbed(),
        started_at=now(),
        repo=names.repo,
        trigger=names.trigger,
        label=names.label,
        commit_date=names.commit_date,
        commit_title=names.commit_title,
        tool_version=version,
        asked=asked,
        night=night,
        ci_url=job_url(),
        branch_start=names.branch_start,
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """How a plan is worked through.

    `workers` cells at once on each GPU; after `budget_s` seconds no new one starts; `tune_together`: they may autotune at
    once; `start`: `fork` from a process that has imported everything, or `spawn` a fresh one a cell; `gpus`: as in
    `jobs.pool.device_slots.choose_gpus`; `exclusive`: one cell at a time, on the cores of one of the workers.
    """

    workers: int = 1
    budget_s: float = float("inf")
    tune_together: bool = False
    start: str = "fork"
    gpus: str | None = None
    exclusive: bool = False

    @property
    def at_once(self) -> int:
        """Cells under way at once on each GPU."""
        return 1 if self.exclusive else self.workers


@dataclass(frozen=True, slots=True)
class Shift:
    """What one device does in a run: its work, where, in which environment, into which bundle, by which fork server.

    Without a `launcher`, or with one that has gone, the lane starts its own.
    """

    work: Work
    place: Place
    environment: Mapping[str, Any]
    writer: BundleWriter
    launcher: Launcher | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The closed bundles, the error that ended the run before its time, and when the first cell began (monotonic)."""

    paths: list[Path]
    lost: LostDeviceError | None = None
    first_at: float | None = None


def measure_shifts(
    shifts: Sequence[Shift],
    settings: Settings,
    listen: Listener,
    variables: Mapping[str, str],
    pace: Pace,
    memory_of: MemoryOf = unknown,
) -> Result:
    """Does the work of all shifts side by side and closes their bundles.

    `variables` are added to each cell's environment; `memory_of` tells the bytes of device memory that a cell needs.
    Cells that the budget leaves out stay missing, and so do all that a lost GPU leaves. Interrupted, it leaves the
    bundles open and on disk with all that was measured.

    Raises:
        LauncherError: the processes that start the cells keep dying.
    """
    lost = None
    lanes = [lane_of(shift, settings, variables, pace, memory_of) for shift in shifts]
    try:
        for shift in shifts:
            shift.writer.environment(environment_id(shift.environment), shift.environment)
            for copy in shift.work.copies:
                shift.writer.measurement(copy)
                listen(copy)
        with closing(Pool(lanes, pace.budget_s).run()) as outcomes:
            for index, outcome in outcomes:
                twins = shifts[index].work.twins.get(outcome.measurement.cell.cell_id, ())
                for measurement in record(shifts[index].writer, outcome, twins):
                    listen(measurement)
    except LostDeviceError as error:
        lost = error
    except BaseException:
        for shift in shifts:
            shift.writer.abandon()
        raise
    first_at = min((lane.first_at for lane in lanes if lane.first_at is not None), default=None)
    return Result([shift.writer.close(now()) for shift in shifts], lost, first_at)


def lane_of(
    shift: Shift, settings: Settings, variables: Mapping[str, str], pace: Pace, memory_of: MemoryOf = unknown
) -> Lane:
    """The lane that does a shift's cells; nothing is started yet."""
    device = str(shift.environment["device"])
    return Lane(
        shift.work.cells,
        settings,
        shift.place,
        {**os.environ, **variables},
        preload_for(shift.work.cells, device) if pace.start == "fork" else None,
        pace.tune_together,
        memory_of,
        tunes,
        shift.launcher,
    )


def record(writer: BundleWriter, outcome: Outcome, twins: Sequence[Cell] = ()) -> list[Measurement]:
    """Writes one outcome: its environment and program first, if they are new, then the measurement under each name."""
    measurement = outcome.measurement
    if outcome.environment and measurement.environment_id:
        writer.environment(measurement.environment_id, outcome.environment)
    if outcome.program and measurement.program_id:
        writer.program(measurement.program_id, outcome.program)
    found = [measurement, *(copy_for(twin, measurement) for twin in twins)]
    for item in found:
        writer.measurement(item)
    return found
