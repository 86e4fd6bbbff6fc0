"""`run --again`: from a file of `report --again-plan`, or from two sides, to a plan for each run that is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from collector.own_models import OwnModel
from collector.usage_errors import ConfigError, ZooError
from collector.zoo.registry import find
from jobs.plan.models_file import check_local, refusal
from jobs.plan.planning import NothingToDoError, Plan, check_config, check_plan, load_plan
from jobs.requested_options import RunNames

if TYPE_CHECKING:
    from analysis.rerun import Again
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

        headers = [make_header(testbed.environment, RunNames(commit=commit)) for testbed in testbeds]
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


def plans_again(
    named: Sequence[str],
    database: str,
    device: str | None,
    most: int,
    local: Mapping[str, OwnModel] = MappingProxyType({}),
) -> Rounds:
    """The plans that a file or two sides ask for: every cell in as many runs as it needs, `most` at the most.

    Of a user's own models only the `local` ones are called (`jobs.plan.models_file`).

    Raises:
        ConfigError: the file holds no plan, or one for another device.
        SideError: a text names no side.
        NothingToDoError: nothing that further runs would settle can be measured here.
    """
    if len(named) == 1:
        try:
            plan = load_plan(Path(named[0]))
        except OSError as error:
            raise ConfigError(f"--again {named[0]}: {error.strerror}") from error
        if not plan.cells:
            raise NothingToDoError(f"nothing to measure again: {named[0]} plans no cell")
        plan = replace(plan, own_models=tuple(local.values()))
        check_local(plan.cells, local)
        check_plan(plan, named[0], device)
        return Rounds(plan.cells[0].device, rounds(plan, most))
    base, new = named or _LATEST
    again, sides = _of_sides(base, new, database)
    devices = sorted({item.cell.device for item in again.cells})
    if len(devices) > 1 and not device:
        raise click.UsageError(f"cells of {' and '.join(devices)} are to be measured again: choose with --device")
    runs = {item.cell.cell_id: item.runs for item in again.cells}
    plan = Plan([], runs=runs, own_models=tuple(local.values()))
    for cell in [item.cell for item in again.cells if not device or item.cell.device == device]:
        if reason := refusal(cell, local):
            plan.left_out.append(reason)
            continue
        try:
            # The results may be another host's: this one may lack a model, or its torch an option.
            find(cell.suite, cell.model, plan.own_models)
            check_config(cell.config, cell.device)
            plan.cells.append(cell)
        except (ZooError, ConfigError) as error:
            plan.left_out.append(f"{cell}: {error}")
    if plan.left_out and not plan.cells:
        reasons = list(dict.fromkeys(plan.left_out))
        raise NothingToDoError(f"nothing to measure again here: {'; '.join(reasons[:3])}")
    if not plan.cells:
        left = f"{again.too_noisy} too noisy, {again.elsewhere} of different testbeds"
        raise NothingToDoError(f"nothing to measure again: {left}, {again.missing} missing (see `resume`)")
    return Rounds(device or devices[0], rounds(plan, most), sides)


def rounds(plan: Plan, most: int) -> list[Plan]:
    """A plan for each run, `most` at the most: the first has every cell, later ones those that need as many runs."""
    needed = {cell: plan.runs.get(cell.cell_id, 1) for cell in plan.cells}
    plans = []
    for number in range(min(most, max(needed.values(), default=0))):
        cells = [cell for cell in plan.cells if needed[cell] > number]
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
            "--again measures what the comparison names: leave out models, phases, sizes and configs (but for --model "
            "module:function, which lets it call a model of your own)"
        )


def _of_sides(base: str, new: str, database: str) -> tuple[Again, tuple[Side, Side]]:
    """What to measure again of two sides, and the sides."""
    from analysis.compare.compare_sides import compare_named
    from analysis.rerun import find_again
    from db.engine import open_store
    from db.queries.details import configs_of

    with open_store(database, write=False).connect() as connection:
        comparison = compare_named(connection, base, new)
        again = find_again(comparison, configs_of(connection, {one.cell.config_id for one in comparison.cells}))
    return again, (comparison.base, comparison.new)
