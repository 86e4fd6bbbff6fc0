"""`nightly --executor ray`: measure the shards of a night, one at a time on each node, and lost ones again elsewhere.

A node that refuses (another torch, a missing library, a GPU that stopped answering) gets no further shard.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from collector.bundle import BundleContents, read_bundle
from collector.device import CPU, GPU, is_accelerator
from collector.output_file import write_output
from collector.usage_errors import BundleError
from collector.vocabulary import Cell
from db.engine import open_store
from jobs import tool_version
from jobs.cluster.ray_cluster import ClusterError, LostError, Node, RayCluster, connected, usable_nodes
from jobs.options import POSITIVE, Storage, as_one
from jobs.output.tables import PipeConsole, say
from jobs.output.terminal import several
from jobs.plan.cost import CostModel, read_history
from jobs.plan.planning import Plan
from jobs.plan.shards import Group, group_of, last_places, merge_night, shares
from jobs.pool.child import INTERRUPTED, Request, bundle_files
from jobs.pool.runner import new_run_id
from jobs.pool.session import RunProgress, require_cells, storing
from jobs.pool.testbeds import probe
from jobs.requested_options import RequestedOptions, RunNames, Selection

#: The number of times that a cell may be lost with its node before it is given up.
_ATTEMPTS = 3
#: Seconds between two looks at the cluster while no task has a message.
_LOOK_S = 1.0
#: Seconds without a usable node after which a night ends: a lost node may be replaced meanwhile.
_PATIENCE_S = 60.0
#: Exit codes of a child that was killed or interrupted, as a shell spells them.
_KILLED = (INTERRUPTED, 137)


@dataclass(slots=True)
class Task:
    """The cells of a task. `home` is the id of the node that measured them last, or empty.

    `node` is the id of the node that measures them now, `name` the name that this node reports once it has begun.
    """

    cells: list[Cell]
    home: str = ""
    node: str = ""
    name: str = ""


def cut_shards(
    cells: Sequence[Cell], nodes: Sequence[Node], count: int, history: Sequence[BundleContents]
) -> list[Task]:
    """Cut cells into about `count` shards, the longest first; a model's cells in one phase stay together, in the plan's order.

    `history` are earlier runs, the newest first. If nodes of the cluster are in it, a model goes back to the node that measured
    it last, as long as no node then takes much longer than the others (`jobs.plan.shards.shares`).
    """
    model = CostModel.of_history(history)
    homes = _homes(nodes, history)
    if homes.keys() & {group_of(cell) for cell in cells}:
        each = math.ceil(count / len(nodes))
        by_node = zip(nodes, shares(cells, model, len(nodes), homes), strict=True)
        parts = [Task(part, node.node_id) for node, share in by_node for part in shares(share, model, each)]
    else:
        parts = [Task(part) for part in shares(cells, model, count)]
    filled = [shard for shard in parts if shard.cells]
    return sorted(filled, key=lambda shard: -sum(model.estimate(cell).worker_s for cell in shard.cells))


def _homes(nodes: Sequence[Node], history: Sequence[BundleContents]) -> dict[Group, int]:
    """Return the index of the node that measured each group last, leaving out nodes that share a host name."""
    hosts = Counter(node.host for node in nodes)
    numbers = {node.host: number for number, node in enumerate(nodes) if hosts[node.host] == 1}
    return last_places(history, lambda testbed: numbers.get(str(testbed.get("node", ""))))


@dataclass(slots=True)
class ClusterNight:
    """A night on a cluster: measures shards and stores their bundles; `left` has the cells without an outcome, by `cell_id`.

    `folder` takes the bundles; `store` ingests one and returns a line about it.
    """

    cluster: RayCluster
    request: Request
    left: dict[str, Cell]
    folder: Path
    progress: RunProgress
    store: Callable[[Path], str] | None = None
    run_ids: list[str] = field(default_factory=list)
    _queue: list[Task] = field(default_factory=list)
    _running: dict[Any, Task] = field(default_factory=dict)
    #: The nodes that get no further shard, with the reason, which is empty for nodes that died.
    _unusable: dict[str, str] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _idle_since: float | None = None

    def run(self, shards: Sequence[Task]) -> None:
        """Measure the shards, and return when none is left or the time is over.

        Raises:
            ClusterError: no usable node is left.
        """
        self._queue = list(shards)
        try:
            while self._running or (self._queue and self.request.left_s):
                if self.request.left_s:
                    self._start_tasks()
                for handle in self.cluster.ready(list(self._running), _LOOK_S):
                    self._hear(handle)
                if not self.request.left_s:
                    self._cancel([handle for handle, shard in self._running.items() if not shard.name])
        finally:
            self._cancel(list(self._running))

    def say(self, text: str) -> None:
        """Print a line."""
        say(self.progress.console, text)

    def _cancel(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            self.cluster.cancel(handle)
            del self._running[handle]

    def _start_tasks(self) -> None:
        """Start a shard on each idle node: the next shard whose home is this node, or is not usable."""
        nodes = [node for node in self.cluster.nodes() if node.node_id not in self._unusable]
        usable = usable_nodes(nodes, self._queue[0].cells[0].device) if self._queue else []
        ids, busy = {node.node_id for node in usable}, {shard.node for shard in self._running.values()}
        for node in usable:
            fitting = (shard for shard in self._queue if shard.home == node.node_id or shard.home not in ids)
            if node.node_id not in busy and (shard := next(fitting, None)):
                self._queue.remove(shard)
                shard.node, shard.name = node.node_id, ""
                request = replace(self.request, cells=shard.cells)
                self._running[self.cluster.start(node, json.dumps(request.to_json()))] = shard
        if usable or self._running:
            self._idle_since = None
            return
        reasons = "; ".join(dict.fromkeys(filter(None, self._unusable.values())))
        self._idle_since = self._idle_since or time.monotonic()
        if reasons or time.monotonic() - self._idle_since >= _PATIENCE_S:
            raise ClusterError(f"no node of the cluster is left to measure on: {reasons or 'all were lost'}")

    def _hear(self, handle: Any) -> None:
        shard = self._running[handle]
        try:
            message = self.cluster.take(handle)
        except LostError as error:
            del self._running[handle]
            self._lose(shard, str(error))
            return
        if "bundles" in message:
            del self._running[handle]
            self._finish(shard, message)
            return
        shard.name = str(message["node"])
        self.say(f"node {shard.name} measures {several(len(shard.cells), 'cell')}{message['note']}")

    def _finish(self, shard: Task, message: Mapping[str, Any]) -> None:
        code, reason = int(message["code"]), str(message["reason"])
        try:
            for name, data in message["bundles"].items():
                self._save(self.folder / Path(name).name, data)
        except (BundleError, FileExistsError) as error:
            code, reason = 1, str(error)
        if code in _KILLED or code < 0:
            self._lose(shard, "its process was killed")
        elif code:
            self._unusable[shard.node] = reason
            left = [cell for cell in shard.cells if cell.cell_id in self.left]
            elsewhere = f": {several(len(left), 'cell')} planned for others" if left else ""
            self.say(f"node {shard.name} gets no more cells ({reason}){elsewhere}")
            self._plan_again(left)

    def _save(self, path: Path, data: bytes) -> None:
        write_output(path, data, force=False)
        try:
            contents = read_bundle(path)
        except BundleError:
            path.unlink()
            raise
        header, testbed = contents.header, contents.header.testbed
        machine = testbed.get("gpu") or f"{testbed.get('cpu')}, {testbed.get('cores')} cores"
        self.say(f"run {header.run_id}: node {testbed.get('node')}, {machine}, {header.branch}@{header.commit[:10]}")
        for item in contents.latest().values():
            self.progress.took(item)
            self.left.pop(item.cell.cell_id, None)
        self.say(f"bundle {path}")
        self.run_ids.append(header.run_id)
        if self.store:
            self.say(self.store(path))

    def _lose(self, shard: Task, reason: str) -> None:
        if not shard.name:  # Ray lists a dead node for some seconds more
            self._unusable[shard.node] = ""
            self._queue.append(shard)
            return
        left = [cell for cell in shard.cells if cell.cell_id in self.left]
        self._losses.update(cell.cell_id for cell in left)
        again = [cell for cell in left if self._losses[cell.cell_id] < _ATTEMPTS]
        self.say(f"node {shard.name} was lost ({reason}): {several(len(again), 'cell')} planned again")
        for cell in left:
            if cell not in again:
                self.say(f"{cell}: lost with its node {_ATTEMPTS} times, not tried again")
        self._plan_again(again)

    def _plan_again(self, cells: Sequence[Cell]) -> None:
        """Queue a shard for each model and phase, so that a model that takes its node down is alone in its shard next time."""
        groups: dict[Group, list[Cell]] = defaultdict(list)
        for cell in cells:
            groups[group_of(cell)].append(cell)
        self._queue += map(Task, groups.values())


#: Shards for each node that a night is cut into. More shards lose less with a node, but each imports torch anew.
_SHARDS_A_NODE = 4


@dataclass(frozen=True, slots=True)
class Executing:
    """The options for the host or cluster that measures; the fields are the names of the options."""

    executor: str = "host"
    address: str | None = None
    tasks: int | None = None

    @property
    def on_cluster(self) -> bool:
        """Return whether the nodes of a cluster measure."""
        return self.executor == "ray"

    def check(self, of_a_host: Sequence[str]) -> None:
        """Raise `click.UsageError` for options without effect under this executor; `of_a_host` are given options of one host."""
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
    """Connect, plan for the requested device or the device of the nodes, and measure; return the ids of the runs.

    A night that has bundles in the folder is continued: its measured cells are not measured again.

    Raises:
        click.UsageError: Ray is not installed.
        NothingToDoError: the plan is empty.
        ClusterError: there is no such cluster, none of its nodes can measure, or cells were lost with their nodes; all
            measurements until then are stored.
    """
    folder, database = storage.out, storage.target
    console = PipeConsole(file=sys.stdout)  # what Ray prints goes to standard error meanwhile
    with connect(executing.address) as cluster:
        has_gpus = any(node.gpus for node in cluster.nodes())
        plan, names = planned(device or (GPU if has_gpus else CPU))
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
    """Measure the cells that no bundle of the night has yet; return the error that ended this early, if any."""
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
    """Return the request that all shards share: names, options, the torch and the version of this program, the end time."""
    # A task sees only the GPUs of its node that Ray gave it.
    gpus = "all" if is_accelerator(plan.cells[0].device) else None
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
    hint = "GPU: use --device cpu, or" if is_accelerator(device) else "CPU for tasks:"
    raise ClusterError(f"no node of the cluster has a {hint} see `ray status`")


def _bundles_of(folder: Path, night: str) -> dict[Path, BundleContents]:
    """Return the bundles of a night that are in a folder already, by their paths."""
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
        if (node.gpus if is_accelerator(plan.cells[0].device) else node.cpus) and node not in usable:
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
