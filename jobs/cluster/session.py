"""`nightly --executor ray`: plans for a cluster, measures on it, stores the bundles, says what is missing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleContents, BundleError, read_bundle
from collector.output_file import write_output
from db.engine import open_store
from jobs import tool_version
from jobs.cluster.night import ClusterNight, cut_shards
from jobs.cluster.ray_cluster import ClusterError, Node, RayCluster, connected, usable_nodes
from jobs.options import POSITIVE, Storage, as_one
from jobs.output.terminal import several
from jobs.plan.cost import read_history
from jobs.plan.planning import Plan
from jobs.plan.shards import merge_night
from jobs.pool.child import Request, bundle_files
from jobs.pool.host import probe
from jobs.pool.progress import RunProgress
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection
from jobs.pool.runner import new_run_id
from jobs.pool.session import require_cells, storing

#: Shards a node that a night is cut into. With more, less is lost with a node; each imports torch anew.
_SHARDS_A_NODE = 4


@dataclass(frozen=True, slots=True)
class Executing:
    """Who measures; the fields are the names of the options."""

    executor: str = "host"
    address: str | None = None
    tasks: int | None = None

    @property
    def on_cluster(self) -> bool:
        """Whether the nodes of a cluster measure."""
        return self.executor == "ray"

    def check(self, of_a_host: Sequence[str]) -> None:
        """Raises `click.UsageError` for options without effect under this executor; `of_a_host` are those of one host."""
        if self.on_cluster and of_a_host:
            raise click.UsageError(f"{of_a_host[0]} is for this host alone: leave it out, or --executor")
        if not self.on_cluster and self.tasks is not None:
            raise click.UsageError("--tasks goes with --executor ray: leave it out, or see --workers")


executing_options = as_one(
    "executing",
    Executing,
    click.option(
        "--executor",
        type=click.Choice(["host", "ray"]),
        default="host",
        help="Who measures: this host, or the nodes of a Ray cluster, a task a shard of the plan.",
    ),
    click.option(
        "--address",
        envvar="RAY_ADDRESS",
        metavar="HOST:PORT|auto",
        help="With --executor ray: the cluster (or RAY_ADDRESS). [one of this host alone]",
    ),
    click.option("--tasks", type=POSITIVE, help="With --executor ray: shards to cut the night into. [4 a node]"),
)


def measure_night(
    executing: Executing,
    device: str | None,
    planned: Callable[[str], tuple[Plan, RunNames]],
    requested: RequestedOptions,
    storage: Storage,
    costs: Path | None,
    connect: Callable[[str | None], AbstractContextManager[RayCluster]] = connected,
) -> list[str]:
    """Connects, plans for the requested device or the one that the nodes have, and measures; returns the runs' ids.

    A night that has bundles in the folder is continued: its measured cells are not measured again.

    Raises:
        click.UsageError: Ray is not installed.
        NothingToDoError: the plan is empty.
        ClusterError: there is no such cluster, none of its nodes can measure, or cells were lost with their nodes; what was
            measured is stored.
    """
    folder, database = storage.out, storage.target
    console = Console(file=sys.stdout)  # what Ray prints goes to standard error meanwhile
    with connect(executing.address) as cluster:
        has_gpus = any(node.gpus for node in cluster.nodes())
        plan, names = planned(device or ("cuda" if has_gpus else "cpu"))
        require_cells(plan)
        _usable(cluster.nodes(), plan.cells[0].device)
        plan = replace(plan, night=names.night or new_run_id())
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{plan.night}.plan.json"
        write_output(path, json.dumps(plan.to_json(), indent=1) + "\n")
        request = _request(plan, names, requested)
        store = storing(database) if database else None
        earlier = _bundles_of(folder, plan.night)
        measured = {cell_id for run in earlier.values() for cell_id in run.latest()}
        left = {cell.cell_id: cell for cell in plan.cells if cell.cell_id not in measured}
        run_ids = [run.header.run_id for run in earlier.values()]
        progress = RunProgress(console, len(left))
        night = ClusterNight(cluster, request, left, folder, progress, store, run_ids)
        if store:
            for bundle in earlier:
                night.say(store(bundle))
        error = _measure(night, plan, path, executing.tasks, costs or folder)
        if left:
            night.say(_missing(night, path))
        if database and run_ids:
            night.say(str(merge_night(open_store(database, write=True), plan, folder)))
        if error or (left and request.left_s):
            raise error or ClusterError(_missing(night, path))
        return run_ids


def _measure(night: ClusterNight, plan: Plan, path: Path, tasks: int | None, costs: Path) -> ClusterError | None:
    """Measures what no bundle of the night has yet; returns why it ended early, if it did."""
    nodes = night.cluster.nodes()
    usable = _usable(nodes, plan.cells[0].device)
    history, left = read_history(costs), list(night.left.values())
    shards = cut_shards(left, usable, tasks or _SHARDS_A_NODE * len(usable), history) if left else []
    _announce(night, plan, len(shards), nodes, usable)
    try:
        night.run(shards)
    except ClusterError as error:
        return error
    except KeyboardInterrupt:
        click.echo(f"interrupted: {_missing(night, path)}", err=True)  # `resume` is for runs of one host
        raise SystemExit(130) from None
    return None


def _request(plan: Plan, names: RunNames, requested: RequestedOptions) -> Request:
    """What all shards share: names, options, the torch and the version of this program, the end of the time."""
    # Of a node's GPUs a task has those that Ray gave it.
    gpus = "all" if plan.cells[0].device == "cuda" else None
    budget_s = requested.execution.budget_s
    return Request(
        Selection(),
        (),
        replace(names, night=plan.night),
        RequestedOptions(requested.settings.with_models(plan.own_models), replace(requested.execution, gpus=gpus)),
        torch_git=str(probe("cpu")["torch_git"]),
        tool=tool_version(),
        until=None if budget_s == float("inf") else time.time() + budget_s,
    )


def _usable(nodes: Sequence[Node], device: str) -> list[Node]:
    if usable := usable_nodes(nodes, device):
        return usable
    hint = "GPU: use --device cpu, or" if device == "cuda" else "CPU for tasks:"
    raise ClusterError(f"no node of the cluster has a {hint} see `ray status`")


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
    cells = f"{len(night.left)} of {several(len(plan.cells), 'cell')}"
    night.say(f"night {plan.night}: {cells} in {several(shards, 'task')} on {several(len(usable), 'node')}")
    for node in nodes:
        if (node.gpus if plan.cells[0].device == "cuda" else node.cpus) and node not in usable:
            night.say(
                f"left out: node {node.host} with {node.cpus} CPUs and {node.gpus} GPUs, others have twice as many"
            )
    for reason in plan.left_out:
        night.say(f"left out: {reason}")


def _missing(night: ClusterNight, path: Path) -> str:
    number = len(night.left)
    return (
        f"{several(number, 'cell')} {'was' if number == 1 else 'were'} not measured; what was is in the bundles, and the "
        f"same command with --plan {path} continues the night"
    )
