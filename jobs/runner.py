"""Measures a plan: every outcome is a line of the bundle, on disk before the next one is taken."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector.bundle import BundleWriter, RunHeader
from collector.environment import environment_id, extract_testbed
from collector.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Measurement
from jobs.plan import Plan
from jobs.pool import Pool

Listener = Callable[[Measurement], None]


@dataclass(frozen=True, slots=True)
class RunNames:
    """What a run is called. Without a commit it is the installed torch's own, without a branch the one it was built from."""

    branch: str | None = None
    commit: str | None = None
    repo: str = "pytorch/pytorch"
    trigger: str = "adhoc"
    label: str = ""
    commit_date: str | None = None
    commit_title: str | None = None


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


def make_header(environment: Mapping[str, Any], names: RunNames, version: str) -> RunHeader:
    """The first record of a run on this machine."""
    return RunHeader(
        run_id=new_run_id(),
        branch=names.branch or branch_of(str(environment["torch"])),
        commit=names.commit or str(environment["torch_git"]),
        testbed=extract_testbed(environment),
        started_at=now(),
        repo=names.repo,
        trigger=names.trigger,
        label=names.label,
        commit_date=names.commit_date,
        commit_title=names.commit_title,
        tool_version=version,
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """How a plan is worked through: cells at once, seconds after which no new one starts, whether they tune at once."""

    workers: int = 1
    budget_s: float = float("inf")
    tune_together: bool = False


def measure_plan(
    plan: Plan,
    writer: BundleWriter,
    environment: Mapping[str, Any],
    settings: Settings,
    listen: Listener,
    variables: Mapping[str, str],
    pace: Pace,
) -> Path:
    """Measures every cell of a plan and returns the closed bundle. `variables` are added to each cell's environment.

    Cells that the budget leaves out stay missing. Interrupted, it leaves the bundle open and on disk with all that was
    measured.
    """
    pool = Pool(plan.cells, settings, pace.workers, variables, pace.budget_s, pace.tune_together)
    try:
        writer.environment(environment_id(environment), environment)
        writer.plan(plan.cells)
        with closing(pool.run()) as outcomes:
            for outcome in outcomes:
                listen(record(writer, outcome))
    except BaseException:
        writer.abandon()
        raise
    return writer.close(now())


def record(writer: BundleWriter, outcome: Outcome) -> Measurement:
    """Writes one outcome: its environment and program first, if they are new, then the measurement."""
    measurement = outcome.measurement
    if outcome.environment and measurement.environment_id:
        writer.environment(measurement.environment_id, outcome.environment)
    if outcome.program and measurement.program_id:
        writer.program(measurement.program_id, outcome.program)
    writer.measurement(measurement)
    return measurement
