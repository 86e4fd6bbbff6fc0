"""`nightly --dry-run`: what a night would take and what would take it, as text or JSON, without measuring."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from collector.bundle import BundleError
from collector.vocabulary import Cell
from jobs.output.tables import add_row, console, make_table, plain
from jobs.plan.backtest import Night, backtests, slack
from jobs.plan.cost import DEFAULT_WORKER_S, Cost, CostModel, read_history
from jobs.plan.duplicate_programs import Identify, plan_work
from jobs.plan.fallback_estimates import Source
from jobs.plan.planning import Plan
from jobs.plan.schedule import longest_first, predict, shares
from jobs.pool.requested_options import ExecutionOptions

HOUR = 3600.0
_LONGEST = 10
#: What a night's time is broken down by.
AXES: Mapping[str, Callable[[Cell], str]] = {
    "config": lambda cell: cell.config.name,
    "phase": lambda cell: cell.phase.value,
    "suite": lambda cell: cell.suite,
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one GPU would do: cells planned, cells started before the budget ends, and hours.

    `device_limited_h` is None where no bundle says how long cells hold the device.
    """

    cells: int
    started: int
    hours: float
    cpu_limited_h: float
    device_limited_h: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a plan would take. Hours are predicted hours times `slack`, by which measured nights exceeded theirs.

    `costs` are those of the cells that would be measured: a cell whose program another one has is not measured again.
    """

    plan: Plan
    execution: ExecutionOptions
    shares: list[Share]
    slack: float
    nights: int
    costs: list[tuple[Cell, Cost]]

    @property
    def models(self) -> int:
        """How many models are planned."""
        return len({(cell.suite, cell.model) for cell in self.plan.cells})

    @property
    def configs(self) -> int:
        """How many configs are planned."""
        return len({cell.config for cell in self.plan.cells})

    def hours_by(self, axis: str) -> list[tuple[str, int, float]]:
        """Worker-hours along `config`, `phase` or `suite`: name, cells, hours, the largest first."""
        cells: Counter[str] = Counter()
        hours: dict[str, float] = defaultdict(float)
        for cell, cost in self.costs:
            name = AXES[axis](cell)
            cells[name] += 1
            hours[name] += cost.worker_s / HOUR
        return [(name, cells[name], hours[name]) for name in sorted(hours, key=lambda name: (-hours[name], name))]

    def longest(self) -> list[tuple[Cell, Cost]]:
        """The ten cells that occupy a worker longest."""
        return sorted(self.costs, key=lambda item: -item[1].worker_s)[:_LONGEST]

    def sources(self) -> dict[str, int]:
        """How many estimates are measured, derived from other cells, or the default."""
        counts = Counter(cost.source for _, cost in self.costs)
        measured, default = counts[Source.MEASURED], counts[Source.DEFAULT]
        return {"measured": measured, "derived": len(self.costs) - measured - default, "default": default}

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the names of numbers have their units."""
        budget_s = self.execution.budget_s
        return {
            "planned": len(self.plan.cells),
            "cells": len(self.costs),
            "models": self.models,
            "configs": self.configs,
            "left_out": self.plan.left_out,
            "workers": self.execution.at_once,
            "hours": max(share.hours for share in self.shares),
            "gpus": [{name: _rounded(value) for name, value in asdict(share).items()} for share in self.shares],
            "started": sum(share.started for share in self.shares),
            "budget_hours": None if budget_s == float("inf") else budget_s / HOUR,
            "slack": round(self.slack, 3),
            "slack_from_nights": self.nights,
            "worker_hours": {axis: {name: _rounded(hours) for name, _, hours in self.hours_by(axis)} for axis in AXES},
            "longest": [
                {"cell": str(cell), "worker_s": round(cost.worker_s, 1), "source": cost.source.value}
                for cell, cost in self.longest()
            ],
            "estimates": self.sources(),
        }


def forecast(
    plan: Plan,
    model: CostModel,
    execution: ExecutionOptions,
    gpus: int = 1,
    nights: Sequence[Night] = (),
    identify: Identify | None = None,
) -> Forecast:
    """What a plan would take on so many GPUs. Predicted times are multiplied by the slack of the measured `nights`.

    `identify` returns equal texts for configs that are one program, as in `jobs.plan.duplicate_programs.plan_work`.

    Raises:
        ValueError: no worker or no GPU.
    """
    factor = slack(nights)
    cells = plan_work(plan.cells, identify=identify).cells
    parts = [_share(part, model, execution, factor) for part in shares(cells, model, gpus)]
    return Forecast(plan, execution, parts, factor, len(nights), [(cell, model.estimate(cell)) for cell in cells])


def _share(cells: Sequence[Cell], model: CostModel, execution: ExecutionOptions, factor: float) -> Share:
    budget_s = execution.budget_s / factor
    ordered = longest_first(cells, model, execution.at_once, budget_s)
    prediction = predict(ordered, model, execution.at_once, execution.tune_together)
    # An unavailable cell holds the device for no second, which says nothing about the others.
    is_known = any(model.estimate(cell).device_s for cell in cells)
    return Share(
        len(cells),
        prediction.started_within(budget_s),
        factor * prediction.total_s / HOUR,
        factor * prediction.cpu_limited_s / HOUR,
        factor * prediction.device_limited_s / HOUR if is_known else None,
    )


def run_dry(
    plan: Plan, costs: Path | None, out: Path, execution: ExecutionOptions, as_json: bool, gpus: int = 1
) -> None:
    """Prints the forecast by the bundles at `costs`, else by those under `out`.

    Raises:
        BundleError: `costs` is no bundle, or a folder without any.
    """
    history = read_history(costs or out)
    if costs is not None and not history:
        raise BundleError(f"no bundle below {costs}: give a bundle or a folder of bundles, or leave out --costs")
    model = CostModel.learn(item for contents in history for item in contents.measurements)
    result = forecast(plan, model, execution, gpus, backtests(history))
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
    else:
        show(console(), result)


def show(out: Console, result: Forecast) -> None:
    """Prints the forecast for people."""
    for line in _lines(result):
        out.print(plain(line), soft_wrap=True)
    for axis in AXES:
        rows = result.hours_by(axis)
        total = sum(hours for _, _, hours in rows) or 1.0
        table = make_table(axis, "cells", "worker-hours", "share %")
        for name, cells, hours in rows:
            add_row(table, name, str(cells), f"{hours:.2f}", f"{100 * hours / total:.0f}")
        out.print(table)
    table = make_table("longest cells", "worker s", "device s", "estimate")
    for cell, cost in result.longest():
        device = "-" if cost.device_s is None else f"{cost.device_s:.1f}"
        add_row(table, str(cell), f"{cost.worker_s:.0f}", device, cost.source.value)
    out.print(table)


def _lines(result: Forecast) -> list[str]:
    cells, measured, execution = len(result.plan.cells), len(result.costs), result.execution
    duplicates = cells - measured
    same = f"; {duplicates} have the same program as another and are not measured again" if duplicates else ""
    counts = f"{cells} cells, {result.models} models, {result.configs} configs{same}"
    lines = [f"dry run, nothing is measured: {counts}", *(f"left out: {line}" for line in result.plan.left_out)]
    device = "GPU" if any(cell.device != "cpu" for cell, _ in result.costs) else "CPU"
    for number, share in enumerate(result.shares):
        limit = "the device" if (share.device_limited_h or 0.0) > share.cpu_limited_h else "the CPU"
        lines.append(
            f"{device} {number}: {share.cells} cells, {_hours(share.hours)} with {execution.at_once} workers, limited by "
            f"{limit} (CPU {_hours(share.cpu_limited_h)}, device {_hours(share.device_limited_h)})"
        )
    if result.nights:
        lines.append(
            f"hours are the sum over the cells times {result.slack:.2f}, as in {result.nights} measured nights"
        )
    else:
        lines.append("hours are a lower bound: there is no measured night to check the prediction against")
    if execution.budget_s != float("inf"):
        started = sum(share.started for share in result.shares)
        lines.append(
            f"--max-hours: {started} of {measured} cells would be started within {_hours(execution.budget_s / HOUR)}"
        )
    sources = result.sources()
    lines.append(
        f"estimates: {sources['measured']} measured, {sources['derived']} derived from other cells, "
        f"{sources['default']} by default ({DEFAULT_WORKER_S:g} s)"
    )
    return lines


def _hours(hours: float | None) -> str:
    if hours is None:
        return "not known"
    return f"{hours:.2f} h" if hours >= 0.1 else f"{60 * hours:.1f} min"


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value
