"""`nightly --dry-run`: the forecast of a night as text or JSON, without measuring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleError
from collector.vocabulary import Cell
from jobs.output.tables import FittingTable, add_row, console, make_table, plain
from jobs.plan.cost import DEFAULT_WORKER_S, Cost, read_history
from jobs.plan.forecast import AXES, HOUR, Forecast, count_models, forecast_from
from jobs.plan.planning import Plan
from jobs.pool.runner import Pace


def run_dry(plan: Plan, costs: Path | None, out: Path, pace: Pace, as_json: bool, lanes: int = 1) -> None:
    """Prints the forecast by the bundles at `costs`, else by those under `out`.

    Raises:
        BundleError: `costs` is no bundle, or a folder without any.
    """
    if costs is not None and not read_history(costs):
        raise BundleError(f"no bundle below {costs}: give a bundle or a folder of bundles, or leave out --costs")
    found = forecast_from(plan, costs or out, pace, lanes)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
        return
    show(console(), found)


def show(out: Console, found: Forecast) -> None:
    """The forecast as people read it."""
    cells, workers = found.plan.cells, found.pace.at_once
    configs = len({cell.config for cell in cells})
    again = len(cells) - len(found.costs)
    same = f"; {again} have the same program as another and are not measured again" if again else ""
    _say(
        out, f"dry run, nothing is measured: {len(cells)} cells, {count_models(cells)} models, {configs} configs{same}"
    )
    for line in found.plan.left_out:
        _say(out, f"left out: {line}")
    for number, share in enumerate(found.shares):
        limit = "the device" if (share.device_limited_h or 0.0) > share.cpu_limited_h else "the CPU"
        _say(
            out,
            f"{_place(found, number)}: {share.cells} cells, {_hours(share.hours)} with {workers} workers, limited by {limit} "
            f"(CPU {_hours(share.cpu_limited_h)}, device {_hours(share.device_limited_h)})",
        )
    _say(out, _slack_note(found))
    if found.pace.budget_s != float("inf"):
        started = sum(share.started for share in found.shares)
        budget = _hours(found.pace.budget_s / HOUR)
        _say(out, f"--max-hours: {started} of {len(found.costs)} cells would be started within {budget}")
    sources = found.sources()
    _say(
        out,
        f"estimates: {sources['measured']} measured, {sources['derived']} derived from other cells, "
        f"{sources['default']} by default ({DEFAULT_WORKER_S:g} s)",
    )
    for axis in AXES:
        out.print(_axis_table(axis, found.hours_by(axis)))
    out.print(_longest_table(found.longest()))


def _place(found: Forecast, number: int) -> str:
    return f"GPU {number}" if any(cell.device != "cpu" for cell, _ in found.costs) else f"CPU {number}"


def _slack_note(found: Forecast) -> str:
    if not found.nights:
        return "hours are a lower bound: there is no measured night to check the prediction against"
    return f"hours are the sum over the cells times {found.slack:.2f}, as in {found.nights} measured nights"


def _axis_table(axis: str, rows: Sequence[tuple[str, int, float]]) -> FittingTable:
    table = make_table(axis, "cells", "worker-hours", "share %")
    total = sum(hours for _, _, hours in rows) or 1.0
    for name, cells, hours in rows:
        add_row(table, name, str(cells), f"{hours:.2f}", f"{100 * hours / total:.0f}")
    return table


def _longest_table(rows: Sequence[tuple[Cell, Cost]]) -> FittingTable:
    table = make_table("longest cells", "worker s", "device s", "estimate")
    for cell, cost in rows:
        device = "-" if cost.device_s is None else f"{cost.device_s:.1f}"
        add_row(table, str(cell), f"{cost.worker_s:.0f}", device, cost.source.value)
    return table


def _say(out: Console, line: str) -> None:
    out.print(plain(line), soft_wrap=True)


def _hours(hours: float | None) -> str:
    if hours is None:
        return "not known"
    return f"{hours:.2f} h" if hours >= 0.1 else f"{60 * hours:.1f} min"
