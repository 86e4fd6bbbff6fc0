"""What a night would take and what it would spend it on, by what cells are known to cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.vocabulary import Cell
from jobs.plan.cost import Cost, CostModel, read_history
from jobs.plan.duplicate_programs import Identify, plan_work
from jobs.plan.fallback_estimates import Source
from jobs.plan.planning import Plan
from jobs.plan.schedule import bounds, longest_first, shares, started_within
from jobs.pool.runner import Pace
from jobs.regressions.backtest import backtests, slack

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
    pace: Pace
    shares: list[Share]
    slack: float
    nights: int
    costs: list[tuple[Cell, Cost]]

    def hours_by(self, axis: str) -> list[tuple[str, int, float]]:
        """Worker-hours along `config`, `phase` or `suite`: name, cells, hours, the largest first."""
        cells: Counter[str] = Counter()
        hours: dict[str, float] = defaultdict(float)
        for cell, cost in self.costs:
            name = AXES[axis](cell)
            cells[name] += 1
            hours[name] += cost.worker_s / HOUR
        return [
            (name, cells[name], spent) for name, spent in sorted(hours.items(), key=lambda item: (-item[1], item[0]))
        ]

    def longest(self) -> list[tuple[Cell, Cost]]:
        """The ten cells that occupy a worker longest."""
        return sorted(self.costs, key=lambda item: -item[1].worker_s)[:_LONGEST]

    def sources(self) -> dict[str, int]:
        """How many estimates are measured, derived from other cells, or the default."""
        found = Counter(cost.source for _, cost in self.costs)
        measured, default = found[Source.MEASURED], found[Source.DEFAULT]
        return {"measured": measured, "derived": len(self.costs) - measured - default, "default": default}

    def to_json(self) -> dict[str, Any]:
        """All of it; hours and seconds are in the names."""
        return {
            "planned": len(self.plan.cells),
            "cells": len(self.costs),
            "models": count_models(self.plan.cells),
            "configs": len({cell.config for cell in self.plan.cells}),
            "left_out": self.plan.left_out,
            "workers": self.pace.at_once,
            "hours": max(share.hours for share in self.shares),
            "gpus": [{name: _rounded(getattr(share, name)) for name in Share.__slots__} for share in self.shares],
            "started": sum(share.started for share in self.shares),
            "budget_hours": None if self.pace.budget_s == float("inf") else self.pace.budget_s / HOUR,
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
    pace: Pace,
    lanes: int = 1,
    nights: int = 0,
    factor: float = 1.0,
    identify: Identify | None = None,
) -> Forecast:
    """What a plan would take on `lanes` GPUs with `pace.at_once` workers each.

    `factor` multiplies predicted times; `nights` says from how many measured nights it comes. `identify` says which configs
    are one program, as in `jobs.plan.duplicate_programs.plan_work`.

    Raises:
        ValueError: no worker or no lane.
    """
    cells = plan_work(plan.cells, identify=identify).cells
    parts = [_share(part, model, pace, factor) for part in shares(cells, model, lanes)]
    return Forecast(plan, pace, parts, factor, nights, [(cell, model.estimate(cell)) for cell in cells])


def forecast_from(plan: Plan, place: Path, pace: Pace, lanes: int = 1) -> Forecast:
    """The forecast by the bundles at a place, a file or a folder; where there are none every cell costs the default.

    Raises:
        BundleError: `place` is a file and no bundle.
    """
    history = read_history(place)
    nights = backtests(history)
    model = CostModel.learn(item for contents in history for item in contents.measurements)
    return forecast(plan, model, pace, lanes, len(nights), slack(nights))


def _share(cells: Sequence[Cell], model: CostModel, pace: Pace, factor: float) -> Share:
    budget_s = pace.budget_s / factor
    ordered = longest_first(cells, model, pace.at_once, budget_s)
    limits = bounds(ordered, model, pace.at_once, pace.tune_together)
    started = started_within(ordered, model, pace.at_once, budget_s, pace.tune_together)
    # That an unavailable cell holds the device for no second says nothing about the others.
    known = any(model.estimate(cell).device_s for cell in cells)
    hours, cpu_h, device_h = (
        factor * value / HOUR for value in (limits.predicted_s, limits.cpu_limited_s, limits.device_limited_s)
    )
    return Share(len(cells), started, hours, cpu_h, device_h if known else None)


def count_models(cells: Sequence[Cell]) -> int:
    """How many models the cells are of."""
    return len({(cell.suite, cell.model) for cell in cells})


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value
