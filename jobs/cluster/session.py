"""A cluster's night as the command line sees it: what is said, what is stored, and how it goes on where it was cut off."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import RunHeader
from collector.machine.environment import TUNING_VARIABLE
from collector.settings import Settings
from jobs.cli import tool_version
from jobs.cluster.engine import ClusterError, Engine, Node, connected, share_of
from jobs.cluster.gathering import Gathering, write_plan
from jobs.cluster.groups import GROUPS_A_NODE, cut_groups
from jobs.cluster.night import ClusterNight, Telling, counted
from jobs.cluster.options import Executing
from jobs.cluster.request import Request, known_costs, last_spots
from jobs.plan.cost import CostModel, read_history
from jobs.plan.planning import Plan
from jobs.pool.host import probe
from jobs.pool.progress import RunProgress
from jobs.pool.runner import Pace, RunNames, new_run_id
from jobs.pool.session import require_cells, storing


@dataclass(frozen=True, slots=True)
class Asked:
    """How a cluster's night was asked for: `tasks` is None for `GROUPS_A_NODE` a node, `database` for no store."""

    names: RunNames
    settings: Settings
    pace: Pace
    folder: Path
    database: str | None
    costs: Path | None = None
    tasks: int | None = None


def measure_night(
    executing: Executing,
    device: str | None,
    planned: Callable[[str], tuple[Plan, RunNames, Settings]],
    pace: Pace,
    folder: Path,
    database: str | None,
    costs: Path | None,
) -> list[str]:
    """Connects, plans for the device that was asked for or that the nodes have, and measures; returns the runs' ids.

    Raises:
        click.UsageError: Ray is not installed, or traces are asked for.
        ClusterError: there is no such cluster, none of its nodes can measure, or cells were lost with their nodes.
    """
    console = Console(file=sys.stdout)  # what Ray prints goes elsewhere meanwhile
    with connected(executing.address) as engine:
        plan, names, settings = planned(device or device_of(engine.nodes()))
        if settings.trace:
            raise click.UsageError("--trace goes with --executor host: traces would stay on the nodes")
        asked = Asked(names, settings, pace, folder, database, costs, executing.tasks)
        return measure_on_cluster(engine, plan, asked, console)


def device_of(nodes: list[Node]) -> str:
    """What a night measures on where nobody says: GPUs if a node has any."""
    return "cuda" if any(node.gpus for node in nodes) else "cpu"


def measure_on_cluster(engine: Engine, plan: Plan, asked: Asked, console: Console) -> list[str]:
    """Measures a plan on the nodes of a cluster, stores it, and returns the ids of the runs, one a testbed.

    A night of that name which was begun in the folder goes on: what it has measured is not measured again.

    Raises:
        NothingPlannedError: the plan is empty.
        ClusterError: cells were lost with their nodes; what was measured is stored.
    """
    require_cells(plan)
    store = storing(asked.database) if asked.database else None
    night = asked.names.night or new_run_id()
    nodes = engine.nodes()
    share = share_of(nodes, plan.cells[0].device)
    taking = [node for node in nodes if share.fits(node)]
    history = read_history(asked.costs or asked.folder)
    model = CostModel.learn(item for run in history for item in run.measurements)
    last = last_spots(history)
    request = replace(_request(plan, asked, night), known=known_costs(plan.cells, model), last=last)
    gathering = Gathering(asked.folder, night, plan.cells)
    # After the night's bundles were found to be nobody else's, and before anything is measured.
    path = write_plan(asked.folder, night, plan)
    left = list(gathering.left.values())
    groups = cut_groups(left, model, taking, asked.tasks or GROUPS_A_NODE * len(taking), last) if left else []
    _announce(console, night, plan, len(left), taking, nodes, len(groups))
    ended: ClusterError | None = None
    with RunProgress(console, len(left)) as progress:
        told = Telling(progress.took, lambda header: _opened(console, header), lambda text: _say(console, text))
        try:
            ClusterNight(engine, share, request, gathering, told).run(groups)
        except ClusterError as error:
            ended = error
        except KeyboardInterrupt:
            gathering.close()
            # Not the host's own word: `resume` is for runs of one host.
            click.echo(f"interrupted: {_again(gathering, path)}", err=True)
            raise SystemExit(130) from None
    for bundle in gathering.close():
        _say(console, f"bundle {bundle}")
        if store:
            _say(console, store(bundle))
    _say_missing(console, asked, plan, gathering, night, path)
    if ended or (gathering.left and request.left_s > 0):
        raise ended or ClusterError(_again(gathering, path))
    return gathering.run_ids


def _request(plan: Plan, asked: Asked, night: str) -> Request:
    variables = {TUNING_VARIABLE: os.environ[TUNING_VARIABLE]} if os.environ.get(TUNING_VARIABLE) else {}
    budget = asked.pace.budget_s
    return Request(
        plan.cells,
        replace(asked.names, night=night),
        asked.settings,
        # A task has a node's GPUs, or those of them that Ray gave it, which its environment says.
        replace(asked.pace, gpus="all" if plan.cells[0].device == "cuda" else None),
        torch_git=str(probe("cpu")["torch_git"]),
        tool=tool_version(),
        until=None if budget == float("inf") else time.time() + budget,
        variables=variables,
    )


def _announce(
    console: Console, night: str, plan: Plan, left: int, taking: list[Node], nodes: list[Node], tasks: int
) -> None:
    cells = f"{left} of {counted(len(plan.cells), 'cell')}"
    _say(console, f"night {night}: {cells} in {counted(tasks, 'task')} on {counted(len(taking), 'node')}")
    for node in nodes:
        has_any = node.gpus if plan.cells[0].device == "cuda" else node.cpus
        if has_any and node not in taking:
            _say(
                console,
                f"left out: node {node.host} with {node.cpus} CPUs and {node.gpus} GPUs, others have twice as many",
            )
    for line in plan.left_out:
        _say(console, f"left out: {line}")


def _opened(console: Console, header: RunHeader) -> None:
    testbed = header.testbed
    place = testbed.get("gpu") or f"{testbed.get('cpu')}, {testbed.get('cores')} cores"
    _say(console, f"run {header.run_id}: node {testbed.get('node')}, {place}, {header.branch}@{header.commit[:10]}")


def _say_missing(console: Console, asked: Asked, plan: Plan, gathering: Gathering, night: str, path: Path) -> None:
    if gathering.left:
        _say(console, _again(gathering, path))
    if asked.database and gathering.run_ids:
        from db.engine import open_store
        from jobs.plan.shards_merge import merge_night

        merged = merge_night(open_store(asked.database, write=True), replace(plan, night=night), asked.folder)
        _say(console, str(merged))


def _again(gathering: Gathering, path: Path) -> str:
    number = len(gathering.left)
    return (
        f"{counted(number, 'cell')} {'was' if number == 1 else 'were'} not measured; what was is in the bundles, and the same "
        f"command with --plan {path} goes on"
    )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
