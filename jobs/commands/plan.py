"""`inductor-watch plan`: the cells a nightly would measure, without measuring; with `--shards` divided among hosts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from jobs.ci import outputs_file, workflow_night, write_outputs
from jobs.measuring_options import night_name_option, night_options
from jobs.options import EXISTING, FOLDER, example, json_option, refuse_given
from jobs.output.terminal import print_json
from jobs.plan.cost import CostModel, learn_from
from jobs.plan.planning import Plan, planned_night
from jobs.plan.shards import MOST_JOBS, cut, matrix, write_plans
from jobs.pool.runner import new_run_id
from jobs.pool.session import require_cells
from jobs.pool.testbeds import probe
from jobs.requested_options import Selection


@click.command(epilog=example("plan --model T5Small --config triton --json"))
@night_options
@click.option(
    "--shards",
    type=click.IntRange(1, MOST_JOBS),
    help="Divide the night among so many hosts; a model stays on one host.",
)
@click.option(
    "--github-output", is_flag=True, help="With --shards: matrix, shards, cells and night as a step's outputs."
)
@click.option(
    "--costs", type=EXISTING, help="With --shards: a bundle or a folder of bundles to learn from what cells take."
)
@click.option(
    "--out", type=FOLDER, default=Path("plan"), help="With --shards: the folder for plan.json, shard-01.json, ..."
)
@night_name_option("With --shards: what the night is called. [the workflow's run, else the time]")
@json_option
def plan_command(
    selection: Selection,
    configs: tuple[str, ...],
    shards: int | None,
    github_output: bool,
    costs: Path | None,
    out: Path,
    night: str,
    as_json: bool,
) -> None:
    """Show the cells that `nightly` would measure, and what it leaves out.

    With --shards, write a plan for each of several hosts: `nightly --plan` measures one of them, and `ingest --plan` puts the
    night together.
    """
    if shards is None:
        of_shards = ("github_output", "costs", "out", "night")
        refuse_given(of_shards, "goes with --shards: add --shards N, or leave it out")
    elif as_json:
        raise click.UsageError("--json prints the whole plan: with --shards it is in plan.json")
    if github_output:
        outputs_file()  # before anything is written
    plan = planned_night(selection.device or str(probe(None)["device"]), selection, configs)
    if shards is not None:
        _divide(plan, shards, costs, out, night, github_output)
    elif as_json:
        print_json(plan.to_json())
    else:
        _show(plan)


def _divide(plan: Plan, count: int, costs: Path | None, out: Path, night: str, github_output: bool) -> None:
    """Writes a plan for each of so many hosts and says what each takes."""
    require_cells(plan)
    model = learn_from(costs) if costs else CostModel.learn([])
    made, night = cut(plan, model, count), night or workflow_night() or new_run_id()
    write_plans(out, night, plan, made)
    cells = len(plan.cells)
    if github_output:
        write_outputs({"matrix": matrix(made), "shards": str(len(made)), "cells": str(cells), "night": night})
    for shard in made:
        minutes = shard.worker_s / 60
        click.echo(
            f"{out / shard.file}: {len(shard.cells)} cells, {shard.models} models, {minutes:.1f} min of one worker"
        )
    click.echo(f"night {night}: {cells} cells in {len(made)} shards, the whole in {out / 'plan.json'}")


def _show(plan: Plan) -> None:
    for cell in plan.cells:
        click.echo(str(cell))
    for line in plan.left_out:
        click.echo(f"left out: {line}")
    counts = Counter(cell.config.name for cell in plan.cells)
    click.echo(f"{len(plan.cells)} cells: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
