"""`nightly --executor ray`: plans for a cluster, measures on it, stores the bundles, says what is missing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console

from collector.bundle import BundleContents, BundleError, check_bundle, read_bundle
from collector.output_file import write_output
from jobs.cli import tool_version
from jobs.cluster.night import SHARDS_A_NODE, ClusterNight, counted, cut_shards
from jobs.cluster.options import Executing
from jobs.cluster.ray_cluster import ClusterError, Node, RayCluster, connected, share_of
from jobs.plan.cost import read_history
from jobs.plan.planning import Plan
from jobs.pool.child import Request
from jobs.pool.host import probe
from jobs.pool.progress import RunProgress
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection
from jobs.pool.runner import new_run_id
from jobs.pool.session import require_cells, storing


@dataclass(frozen=True, slots=True)
class NightOptions:
    """How a night on a cluster was requested: `shards` is None for `SHARDS_A_NODE` a node, `database` for no store."""

    names: RunNames
    requested: RequestedOptions
    folder: Path
    database: str | None
    costs: Path | None = None
    shards: int | None = None


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
        options = NightOptions(names, requested, folder, database, costs, executing.tasks)
        return measure_on_cluster(cluster, plan, options, console)


def measure_on_cluster(cluster: RayCluster, plan: Plan, options: NightOptions, console: Console) -> list[str]:
    """Measures a plan on the nodes of a cluster, stores it, and returns the ids of the runs.

    A night of that name which has bundles in the folder is continued: its measured cells are not measured again.

    Raises:
        NothingPlannedError: the plan is empty.
        ClusterError: cells were lost with their nodes; what was measured is stored.
    """
    require_cells(plan)
    store = storing(options.database) if options.database else None
    night = options.names.night or new_run_id()
    nodes, history = cluster.nodes(), read_history(options.costs or options.folder)
    share = share_of(nodes, plan.cells[0].device)
    bundles = Bundles(options.folder, console, store)
    measured = bundles.take_up(night)
    left = {cell.cell_id: cell for cell in plan.cells if cell.cell_id not in measured}
    path = _write_plan(options.folder, night, plan)
    usable = [node for node in nodes if share.fits(node)]
    cells = list(left.values())
    shards = cut_shards(cells, usable, options.shards or SHARDS_A_NODE * len(usable), history) if left else []
    _announce(console, night, plan, len(left), len(shards), nodes, usable)
    request = _request(plan, options, night)
    error: ClusterError | None = None
    with RunProgress(console, len(left)) as bundles.progress:
        work = ClusterNight(cluster, share, request, left, bundles.save, bundles.say, history)
        try:
            work.run(shards)
        except ClusterError as raised:
            error = raised
        except KeyboardInterrupt:
            click.echo(f"interrupted: {_missing(len(left), path)}", err=True)  # `resume` is for runs of one host
            raise SystemExit(130) from None
    if left:
        bundles.say(_missing(len(left), path))
    if options.database and bundles.run_ids:
        _merge(console, options.database, replace(plan, night=night), options.folder)
    if error or (left and request.left_s):
        raise error or ClusterError(_missing(len(left), path))
    return bundles.run_ids


@dataclass(slots=True)
class Bundles:
    """The bundles of a night: writes those that arrive to the folder, stores them and shows their cells."""

    folder: Path
    console: Console
    store: Callable[[Path], str] | None
    progress: RunProgress | None = None
    run_ids: list[str] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.run_ids = []

    def take_up(self, night: str) -> set[str]:
        """Stores the bundles of the night that are in the folder already; returns the `cell_id`s that they measured."""
        measured: set[str] = set()
        for path in sorted(self.folder.glob("*.jsonl.gz")):
            try:
                header = check_bundle(path)
            except BundleError:
                continue
            if header.night == night and not header.run_id.endswith("-absent"):
                measured |= self._take(path, read_bundle(path))
        return measured

    def save(self, name: str, data: bytes) -> set[str]:
        """Writes and stores a bundle that a node returned; returns the `cell_id`s that it measured.

        Raises:
            BundleError: it is no bundle.
            FileExistsError: there is a bundle of that name.
        """
        path = self.folder / Path(name).name
        write_output(path, data, force=False)
        try:
            contents = read_bundle(path)
        except BundleError:
            path.unlink()
            raise
        testbed = contents.header.testbed
        machine = testbed.get("gpu") or f"{testbed.get('cpu')}, {testbed.get('cores')} cores"
        header = contents.header
        self.say(f"run {header.run_id}: node {testbed.get('node')}, {machine}, {header.branch}@{header.commit[:10]}")
        for item in contents.latest().values():
            if self.progress:
                self.progress.took(item)
        self.say(f"bundle {path}")
        return self._take(path, contents)

    def say(self, text: str) -> None:
        """Prints a line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _take(self, path: Path, contents: BundleContents) -> set[str]:
        self.run_ids.append(contents.header.run_id)
        if self.store:
            self.say(self.store(path))
        return set(contents.latest())


def _write_plan(folder: Path, night: str, plan: Plan) -> Path:
    """Writes the whole plan to `FOLDER/NIGHT.plan.json`, which `nightly --plan` and `ingest --plan` read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{night}.plan.json"
    write_output(path, json.dumps({"night": night, **plan.to_json()}, indent=1) + "\n")
    return path


def _request(plan: Plan, options: NightOptions, night: str) -> Request:
    execution = options.requested.execution
    return Request(
        Selection(),
        (),
        replace(options.names, night=night),
        # Of a node's GPUs a task has those that Ray gave it.
        replace(
            options.requested, execution=replace(execution, gpus="all" if plan.cells[0].device == "cuda" else None)
        ),
        torch_git=str(probe("cpu")["torch_git"]),
        tool=tool_version(),
        until=None if execution.budget_s == float("inf") else time.time() + execution.budget_s,
    )


def _announce(
    console: Console, night: str, plan: Plan, left: int, shards: int, nodes: list[Node], usable: list[Node]
) -> None:
    lines = [
        f"night {night}: {left} of {counted(len(plan.cells), 'cell')} in {counted(shards, 'task')} "
        f"on {counted(len(usable), 'node')}"
    ]
    for node in nodes:
        if (node.gpus if plan.cells[0].device == "cuda" else node.cpus) and node not in usable:
            lines.append(
                f"left out: node {node.host} with {node.cpus} CPUs and {node.gpus} GPUs, others have twice as many"
            )
    for line in (*lines, *(f"left out: {reason}" for reason in plan.left_out)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _merge(console: Console, database: str, plan: Plan, folder: Path) -> None:
    from db.engine import open_store
    from jobs.plan.shards import merge_night

    merged = merge_night(open_store(database, write=True), plan, folder)
    console.print(str(merged), markup=False, highlight=False, soft_wrap=True)


def _missing(number: int, path: Path) -> str:
    return (
        f"{counted(number, 'cell')} {'was' if number == 1 else 'were'} not measured; what was is in the bundles, and the "
        f"same command with --plan {path} continues the night"
    )
