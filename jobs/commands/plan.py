"""`inductor-watch plan`: the cells a nightly would measure, without measuring."""

from __future__ import annotations

import json
from collections import Counter

import click

from jobs.options import json_option
from jobs.selection import night_options, planned_night


@click.command(help="The cells a nightly would measure, and what it leaves out.")
@night_options
@json_option
def command(
    suites: tuple[str, ...],
    models: tuple[str, ...],
    phases: tuple[str, ...],
    dtype: str | None,
    device: str | None,
    batch_size: int | None,
    configs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Prints one line a cell, then counts by config."""
    from jobs.host import probe

    place = device or str(probe(None)["device"])
    plan = planned_night(place, suites, models, phases, dtype, batch_size, configs)
    if as_json:
        click.echo(json.dumps({"cells": [cell.to_json() for cell in plan.cells], "left_out": plan.left_out}, indent=2))
        return
    for cell in plan.cells:
        click.echo(str(cell))
    for line in plan.left_out:
        click.echo(f"left out: {line}")
    counts = Counter(cell.config.name for cell in plan.cells)
    click.echo(f"{len(plan.cells)} cells: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
