"""`run --again`: from a file of `report --again-plan`, or from two sides, to a plan for each run that is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collector.errors import ConfigError
from collector.zoo.registry import find
from collector.zoo.spec import ZooError
from jobs.plan.planning import NothingToDoError, Plan, check_config, read_plan
from jobs.pool.requested_options import RunNames

if TYPE_CHECKING:
    from analysis.reports.again import Again
    from db.queries.sides import Side
    from jobs.pool.testbeds import Testbed

_LATEST = ("latest~1", "latest")


@dataclass(frozen=True, slots=True)
class Rounds:
    """The plans of the runs to make on a device, one after the other, and the `sides` that they are for, if known."""

    device: str
    plans: list[Plan]
    sides: tuple[Side, Side] | None = None

    @property
    def next_step(self) -> str:
        """How to look at what was measured: a commit takes every run of it, a night its own only."""
        names = ["BRANCH@BASE", "BRANCH@NEW"]
        if self.sides:
            if set(self.sides[0].commits) & set(self.sides[1].commits):
                return "both sides are of one commit, so name nights: inductor-watch report BASE latest"
            names = [f"{side.branches[0]}@{side.commits[0][:12]}" for side in self.sides]
        return f"look at it with all runs of each commit: inductor-watch report {' '.join(names)}"

    def doubts(self, testbeds: Sequence[Testbed], commit: str | None) -> list[str]:
        """Why what this machine measures would settle nothing, a line each."""
        if self.sides is None:
            return []
        from jobs.pool.runner import make_header

        headers = [make_header(testbed.environment, RunNames(commit=commit), "") for testbed in testbeds]
        commits = {sha for side in self.sides for sha in side.commits}
        known = [run.testbed for side in self.sides for run in side.runs]
        lines = []
        if here := {header.commit for header in headers} - commits:
            lines.append(
                f"the installed torch is {', '.join(sha[:12] for sha in sorted(here))}, not a commit of either side: "
                "it counts for neither"
            )
        if not any(header.testbed in known for header in headers):
            lines.append(
                "this machine is another testbed than that of either side: its latencies are not compared with theirs"
            )
        return lines


def plans_again(named: Sequence[str], database: str, device: str | None, most: int) -> Rounds:
    """The plans that a file or two sides ask for: every cell in as many runs as it needs, `most` at the most.

    Raises:
        ConfigError: the file holds no plan, or one for another device.
        SideError: a text names no side.
        NothingToDoError: nothing that further runs would settle can be measured here.
    """
    if len(named) == 1:
        path = Path(named[0])
        device = device or _device_in(path)
        plan, runs = read_again(path, device)
        if not plan.cells:
            raise NothingToDoError(f"nothing to measure again: {path} plans no cell")
        return Rounds(device, rounds(plan, runs, most))
    base, new = named or _LATEST
    again, sides = _of_sides(base, new, database)
    devices = sorted({item.cell.device for item in again.cells})
    if len(devices) > 1 and not device:
        raise click.UsageError(f"cells of {' and '.join(devices)} are to be measured again: choose with --device")
    plan = Plan([])
    for cell in [item.cell for item in again.cells if not device or item.cell.device == device]:
        try:
            # The results may be another host's: this one may lack a model, or its torch an option.
            find(cell.suite, cell.model)
            check_config(cell.config, cell.device)
            plan.cells.append(cell)
        except (ZooError, ConfigError) as error:
            plan.left_out.append(f"{cell}: {error}")
    if plan.left_out and not plan.cells:
        raise NothingToDoError(f"nothing to measure again here: {'; '.join(plan.left_out[:3])}")
    if not plan.cells:
        left = f"{again.too_noisy} too noisy, {again.elsewhere} of different testbeds"
        raise NothingToDoError(f"nothing to measure again: {left}, {again.missing} missing (see `resume`)")
    runs = {item.cell.cell_id: item.runs for item in again.cells}
    return Rounds(device or devices[0], rounds(plan, runs, most), sides)


def read_again(path: Path, device: str) -> tuple[Plan, dict[str, int]]:
    """The plan in a file and the runs that each cell needs, by `cell_id`: one where the file has no number.

    Raises:
        ConfigError: no such plan, or a number of runs that is not from 1 to the most that a verdict advises.
    """
    from analysis.stats.verdicts import MOST_RUNS

    plan = read_plan(path, device)
    runs = json.loads(path.read_text()).get("runs", {})
    if not isinstance(runs, dict) or not all(type(count) is int and 0 < count <= MOST_RUNS for count in runs.values()):
        raise ConfigError(
            f"{path}: `runs` gives a cell_id a number from 1 to {MOST_RUNS}: write it with `report --again-plan`"
        )
    return plan, {cell.cell_id: runs.get(cell.cell_id, 1) for cell in plan.cells}


def rounds(plan: Plan, runs: Mapping[str, int], most: int) -> list[Plan]:
    """A plan for each run, `most` at the most: the first has every cell, later ones those that need as many runs."""
    plans = []
    for number in range(min(most, max(runs.values(), default=0))):
        cells = [cell for cell in plan.cells if runs[cell.cell_id] > number]
        plans.append(replace(plan, cells=cells, left_out=[] if number else plan.left_out, night=""))
    return plans


def check_arguments(named: Sequence[str], again: bool, is_selected: bool) -> None:
    """Raises `click.UsageError` where `--again` and what it is to measure do not go together."""
    if named and not again:
        raise click.UsageError(
            f"unexpected argument {named[0]!r}: name models with --model; a file or two sides need --again"
        )
    if again and len(named) > 2:
        raise click.UsageError("--again takes a file, or BASE and NEW")
    if again and is_selected:
        raise click.UsageError(
            "--again measures what the comparison names: leave out models, phases, sizes and configs"
        )


def _of_sides(base: str, new: str, database: str) -> tuple[Again, tuple[Side, Side]]:
    """What to measure again of two sides, and the sides."""
    from analysis.compare.verdicts import compare_and_judge
    from analysis.reports.again import find_again
    from db.engine import open_store
    from db.queries.details import configs_of

    with open_store(database, write=False).connect() as connection:
        comparison, judgement = compare_and_judge(connection, base, new)
        again = find_again(comparison, judgement, configs_of(connection, comparison.cells["config_id"].dropna()))
    return again, (comparison.base, comparison.new)


def _device_in(path: Path) -> str:
    """The device of a file's first cell; `cpu` where the file is no plan, of which `read_plan` gives the reason."""
    try:
        return str(json.loads(path.read_text())["cells"][0]["device"])
    except OSError as error:
        raise ConfigError(f"--again {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return "cpu"
