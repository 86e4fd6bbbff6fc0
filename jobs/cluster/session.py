"""`nightly --executor ray`: plans for a cluster, measures on it, stores the bundles, says what is missing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleContents, BundleError, read_bundle
from collector.output_file import write_output
from jobs import tool_version
from jobs.cluster.night import SHARDS_A_NODE, ClusterNight, counted, cut_shards
from jobs.cluster.options import Executing
from jobs.cluster.ray_cluster import ClusterError, Node, RayCluster, connected, usable_nodes
from jobs.plan.cost import read_history
from jobs.plan.planning import Plan
from jobs.pool.child import Request, bundle_files
from jobs.pool.host import probe
from jobs.pool.progress import RunProgress
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection
from jobs.pool.runner import new_run_id
from jobs.pool.session import require_cells, storing


def measure_night(
    executing: Executing,
    device: str | None,
    planned: Callable[[str], tuple[Plan, RunNames, RequestedOptions]],
    folder: Path,
    database: str | None,
    costs: Path | None,
) -> list[str]:
    """Connects, plans for the requested device or the one that the nodes have, and measures; returns the runs' ids.

    Raises:
        click.UsageError: Ray is not installed, or traces are requested.
        ClusterError: there is no such cluster, none of its nodes can measure, or cells were lost with their nodes.
    """
    console = Console(file=sys.stdout)  # what Ray prints goes to standard error meanwhile
    with connected(executing.address) as cluster:
        has_gpus = any(node.gpus for node in cluster.nodes())
        plan, names, requested = planned(device or ("cuda" if has_gpus else "cpu"))
        if requested.settings.trace:
            raise click.UsageError("--trace goes with --executor host: traces would stay on the nodes")
        plan = replace(plan, night=names.night or new_run_id())
        request = make_request(plan, names, requested, costs or folder)
        return measure_on_cluster(cluster, plan, request, console, folder, database, executing.tasks)


def make_request(plan: Plan, names: RunNames, requested: RequestedOptions, costs: Path) -> Request:
    """What all shards of a plan share: names, options, the torch and the version of this program, the end of the time."""
    # Of a node's GPUs a task has those that Ray gave it.
    gpus = "all" if plan.cells and plan.cells[0].device == "cuda" else None
    budget_s = requested.execution.budget_s
    return Request(
        Selection(),
        (),
        replace(names, night=plan.night),
        replace(requested, execution=replace(requested.execution, gpus=gpus)),
        torch_git=str(probe("cpu")["torch_git"]),
        tool=tool_version(),
        until=None if budget_s == float("inf") else time.time() + budget_s,
        costs=str(costs),
    )


def measure_on_cluster(
    cluster: RayCluster,
    plan: Plan,
    request: Request,
    console: Console,
    folder: Path,
    database: str | None,
    shards: int | None = None,
) -> list[str]:
    """Measures a plan on the nodes of a cluster, stores it, and returns the ids of the runs.

    A night that has bundles in the folder is continued: its measured cells are not measured again. `shards` are
    `SHARDS_A_NODE` a node by default.

    Raises:
        NothingPlannedError: the plan is empty.
        ClusterError: cells were lost with their nodes; what was measured is stored.
    """
    require_cells(plan)
    store = storing(database) if database else None
    nodes, history = cluster.nodes(), read_history(Path(request.costs))
    usable = _usable(nodes, plan.cells[0].device)
    earlier = _bundles_of(folder, plan.night)
    measured = {cell_id for run in earlier.values() for cell_id in run.latest()}
    left = {cell.cell_id: cell for cell in plan.cells if cell.cell_id not in measured}
    path = _write_plan(folder, plan)
    parts = cut_shards(list(left.values()), usable, shards or SHARDS_A_NODE * len(usable), history) if left else []
    error: ClusterError | None = None
    with RunProgress(console, len(left)) as progress:
        run_ids = [run.header.run_id for run in earlier.values()]
        night = ClusterNight(cluster, request, left, folder, progress, store, history, run_ids)
        _announce(night, plan, len(parts), nodes, usable)
        if store:
            for bundle in earlier:
                night.say(store(bundle))
        try:
            night.run(parts)
        except ClusterError as raised:
            error = raised
        except KeyboardInterrupt:
            click.echo(f"interrupted: {_missing(len(left), path)}", err=True)  # `resume` is for runs of one host
            raise SystemExit(130) from None
    if left:
        night.say(_missing(len(left), path))
    if database and run_ids:
        from db.engine import open_store
        from jobs.plan.shards import merge_night

        night.say(str(merge_night(open_store(database, write=True), plan, folder)))
    if error or (left and request.left_s):
        raise error or ClusterError(_missing(len(left), path))
    return run_ids


def _usable(nodes: Sequence[Node], device: str) -> list[Node]:
    if usable := usable_nodes(nodes, device):
        return usable
    hint = "GPU: use --device cpu, or" if device == "cuda" else "CPU for tasks:"
    raise ClusterError(f"no node of the cluster has a {hint} see `ray status`")


def _write_plan(folder: Path, plan: Plan) -> Path:
    """Writes the whole plan where `nightly --plan` and `ingest --plan` can read it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{plan.night}.plan.json"
    write_output(path, json.dumps({"night": plan.night, **plan.to_json()}, indent=1) + "\n")
    return path


def _bundles_of(folder: Path, night: str) -> dict[Path, BundleContents]:
    """The bundles of a night that are in a folder already."""
    bundles = {}
    for path in bundle_files(folder):
        try:
            contents = read_bundle(path)
        except BundleError:
            continue
        if contents.header.night == night and not contents.header.run_id.endswith("-absent"):
            bundles[path] = contents
    return bundles


def _announce(night: ClusterNight, plan: Plan, shards: int, nodes: Sequence[Node], usable: Sequence[Node]) -> None:
    cells = f"{len(night.left)} of {counted(len(plan.cells), 'cell')}"
    night.say(f"night {plan.night}: {cells} in {counted(shards, 'task')} on {counted(len(usable), 'node')}")
    for node in nodes:
        if (node.gpus if plan.cells[0].device == "cuda" else node.cpus) and node not in usable:
            night.say(
                f"left out: node {node.host} with {node.cpus} CPUs and {node.gpus} GPUs, others have twice as many"
            )
    for reason in plan.left_out:
        night.say(f"left out: {reason}")


def _missing(number: int, path: Path) -> str:
    return (
        f"{counted(number, 'cell')} {'was' if number == 1 else 'were'} not measured; what was is in the bundles, and the "
        f"same command with --plan {path} continues the night"
    )
