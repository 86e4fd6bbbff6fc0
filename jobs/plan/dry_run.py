"""`nightly --dry-run`: the time that a night would take, and the cells that would take it, as text or JSON.

Nothing is measured. Predicted times are multiplied by the **slack**, the factor by which measured nights exceeded the times
that the costs of their own cells predict: starting and ending processes, workers that wait for the device at the same moment,
and the end of a night when not every worker has a cell.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from collector.bundle import BundleContents
from collector.usage_errors import BundleError
from collector.vocabulary import Cell
from jobs.output.tables import FittingTable, console, say
from jobs.output.terminal import several
from jobs.plan.cost import DEFAULT_WORKER_S, Cost, CostModel, Source, read_history
from jobs.plan.planning import Plan
from jobs.plan.shards import longest_first, predict, shares
from jobs.plan.spared_cells import SAME_PROGRAM, plan_work
from jobs.requested_options import ExecutionOptions

HOUR = 3600.0
_LONGEST = 10
#: The axes along which a night's time is broken down.
AXES: Mapping[str, Callable[[Cell], str]] = {
    "config": lambda cell: cell.config.name,
    "phase": lambda cell: cell.phase.value,
    "suite": lambda cell: cell.suite,
}


def backtest(contents: BundleContents) -> tuple[float, float] | None:
    """Return the seconds that a run took and that its cells predict; None if it has too few cells, or cells carried over."""
    items = [item for item in contents.measurements if SAME_PROGRAM not in item.details]
    if any("only" in item.details for item in items):
        return None  # a cell that was carried over does not show how long measuring it takes
    starts = {item.cell: datetime.fromisoformat(item.started_at).timestamp() for item in items}
    workers = contents.header.testbed.get("workers") or 1
    if len(items) < 2 * workers:
        return None
    took_s = max(starts[item.cell] + item.wall_s for item in items) - min(starts.values())
    # A bundle has cells in the order in which they ended; they were started in another order.
    cells = sorted(starts, key=lambda cell: starts[cell])
    predicted_s = predict(cells, CostModel.learn(items), workers).total_s
    return (took_s, predicted_s) if predicted_s > 0 else None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of a plan. For each GPU, `gpus` has its cells, the cells started before the budget ends, and hours.

    `costs` are the costs of the cells that would be measured: a cell with the same program as another is not measured again.
    `slack` is the mean over the given number of measured `nights`, 1 if there is none.
    """

    plan: Plan
    execution: ExecutionOptions
    gpus: list[dict[str, Any]]
    slack: float
    nights: int
    costs: list[tuple[Cell, Cost]]

    def hours_by(self, axis: str) -> list[tuple[str, int, float]]:
        """Return worker-hours along `config`, `phase` or `suite`: name, cells and hours, the most hours first."""
        cells: Counter[str] = Counter()
        hours: dict[str, float] = defaultdict(float)
        for cell, cost in self.costs:
            name = AXES[axis](cell)
            cells[name] += 1
            hours[name] += cost.worker_s / HOUR
        return [(name, cells[name], hours[name]) for name in sorted(hours, key=lambda name: (-hours[name], name))]

    def longest(self) -> list[tuple[Cell, Cost]]:
        """Return the ten cells that occupy a worker longest, with their costs."""
        return sorted(self.costs, key=lambda item: -item[1].worker_s)[:_LONGEST]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; the names of numbers have their units."""
        budget_s, sources = self.execution.budget_s, Counter(cost.source for _, cost in self.costs)
        measured, default = sources[Source.MEASURED], sources[Source.DEFAULT]
        return {
            "planned": len(self.plan.cells),
            "cells": len(self.costs),
            "models": len({(cell.suite, cell.model) for cell in self.plan.cells}),
            "configs": len({cell.config for cell in self.plan.cells}),
            "left_out": self.plan.left_out,
            "workers": self.execution.workers,
            "hours": max(gpu["hours"] for gpu in self.gpus),
            "gpus": self.gpus,
            "started": sum(gpu["started"] for gpu in self.gpus),
            "budget_hours": None if budget_s == float("inf") else budget_s / HOUR,
            "slack": round(self.slack, 3),
            "slack_from_nights": self.nights,
            "worker_hours": {axis: {name: round(hours, 4) for name, _, hours in self.hours_by(axis)} for axis in AXES},
            "longest": [
                {"cell": str(cell), "worker_s": round(cost.worker_s, 1), "source": cost.source.value}
                for cell, cost in self.longest()
            ],
            "estimates": {
                "measured": measured,
                "derived": len(self.costs) - measured - default,
                "default": default,
            },
        }


def forecast(plan: Plan, history: Sequence[BundleContents], execution: ExecutionOptions, gpus: int = 1) -> Forecast:
    """Return the forecast of a plan on this number of GPUs, by the costs and the slack of a history of bundles."""
    model = CostModel.of_history(history)
    nights = [night for contents in history if (night := backtest(contents))]
    slack = sum(took for took, _ in nights) / sum(predicted for _, predicted in nights) if nights else 1.0
    cells = plan_work(plan.cells).cells
    parts = [_gpu(part, model, execution, slack) for part in shares(cells, model, gpus)]
    return Forecast(plan, execution, parts, slack, len(nights), [(cell, model.estimate(cell)) for cell in cells])


def _gpu(cells: Sequence[Cell], model: CostModel, execution: ExecutionOptions, slack: float) -> dict[str, Any]:
    budget_s = execution.budget_s / slack
    ordered = longest_first(cells, model, execution.workers or 1, budget_s)
    prediction = predict(ordered, model, execution.workers or 1)
    # An unavailable cell holds the device for 0 seconds, which says nothing about other cells.
    is_known = any(model.estimate(cell).device_s for cell in cells)
    return {
        "cells": len(cells),
        "started": prediction.started_within(budget_s),
        "hours": round(slack * prediction.total_s / HOUR, 4),
        "cpu_limited_h": round(slack * prediction.cpu_limited_s / HOUR, 4),
        "device_limited_h": round(slack * prediction.device_limited_s / HOUR, 4) if is_known else None,
    }


def run_dry(
    plan: Plan, costs: Path | None, out: Path, execution: ExecutionOptions, as_json: bool, gpus: int = 1
) -> None:
    """Print the forecast by the bundles at `costs`, else by the bundles under `out`.

    Raises:
        BundleError: `costs` is no bundle, or a folder without bundles.
    """
    history = read_history(costs or out)
    if costs is not None and not history:
        raise BundleError(f"no bundle below {costs}: give a bundle or a folder of bundles, or leave out --costs")
    result = forecast(plan, history, execution, gpus)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
    else:
        show(console(), result)


def show(out: Console, result: Forecast) -> None:
    """Print the forecast as text and tables."""
    for line in _lines(result, result.to_json()):
        say(out, line)
    for axis in AXES:
        rows = result.hours_by(axis)
        total = sum(hours for _, _, hours in rows) or 1.0
        table = FittingTable((axis, "cells", "worker-hours", "share %"))
        for name, cells, hours in rows:
            table.add_row(name, str(cells), f"{hours:.2f}", f"{100 * hours / total:.0f}")
        out.print(table)
    table = FittingTable(("longest cells", "worker s", "device s", "estimate"))
    for cell, cost in result.longest():
        device = "-" if cost.device_s is None else f"{cost.device_s:.1f}"
        table.add_row(str(cell), f"{cost.worker_s:.0f}", device, cost.source.value)
    out.print(table)


def _lines(result: Forecast, data: Mapping[str, Any]) -> list[str]:
    duplicates = data["planned"] - data["cells"]
    same = f"; {duplicates} have the same program as another and are not measured again" if duplicates else ""
    counts = f"{data['planned']} cells, {data['models']} models, {data['configs']} configs{same}"
    lines = [f"dry run, nothing is measured: {counts}", *(f"left out: {line}" for line in data["left_out"])]
    device = "GPU" if any(cell.device != "cpu" for cell, _ in result.costs) else "CPU"
    for number, gpu in enumerate(result.gpus):
        cpu_h, device_h = gpu["cpu_limited_h"], gpu["device_limited_h"]
        limit = "the device" if (device_h or 0.0) > cpu_h else "the CPU"
        took = f"{_hours(gpu['hours'])} with {several(data['workers'], 'worker')}"
        lines.append(
            f"{device} {number}: {gpu['cells']} cells, {took}, limited by {limit} (CPU {_hours(cpu_h)}, "
            f"device {'not known' if device_h is None else _hours(device_h)})"
        )
    if result.nights:
        lines.append(
            f"hours are the sum over the cells times {result.slack:.2f}, as in {result.nights} measured nights"
        )
    else:
        lines.append("hours are a lower bound: there is no measured night to check the prediction against")
    if data["budget_hours"] is None:
        lines.append("hours are of one run: the first nights of a branch in a database are two runs (--replicates)")
    else:
        started = f"{data['started']} of {data['cells']} cells"
        lines.append(f"--max-hours: {started} would be started within {_hours(data['budget_hours'])}")
    sources = data["estimates"]
    lines.append(
        f"estimates: {sources['measured']} measured, {sources['derived']} derived from other cells, "
        f"{sources['default']} by default ({DEFAULT_WORKER_S:g} s)"
    )
    return lines


def _hours(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 0.1 else f"{60 * hours:.1f} min"
