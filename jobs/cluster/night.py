"""The shards of a night on a cluster: one at a time on each node, and again elsewhere if they are lost.

A node that refuses (another torch, a missing library, a GPU that stopped answering) gets no further shard.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.bundle import FORMAT, BundleContents, BundleError, read_bundle
from collector.output_file import write_output
from collector.vocabulary import Cell
from jobs.cluster.ray_cluster import ClusterError, LostError, Node, RayCluster, usable_nodes
from jobs.output.terminal import one_line
from jobs.plan.cost import CostModel
from jobs.plan.schedule import Group, group_of, shares
from jobs.pool.child import INTERRUPTED, Request
from jobs.pool.progress import RunProgress

#: Shards a node that a night is cut into. With more, less is lost with a node; each imports torch anew.
SHARDS_A_NODE = 4
#: How often a cell may be lost with its node before it is given up.
_ATTEMPTS = 3
#: Seconds between two looks at the cluster while no task has a message.
_LOOK_S = 1.0
#: Seconds without a node that could measure after which a night ends: a lost node may be replaced meanwhile.
_PATIENCE_S = 60.0
#: Exit codes of a child that was killed or interrupted, as a shell spells them.
_KILLED = (INTERRUPTED, 137)
#: The details of a measurement that the costs of a cell are learned from.
_COST_DETAILS = ("device_bytes", "held_s", "waited_s", "stood_s")


@dataclass(frozen=True, slots=True)
class Shard:
    """The cells of a task, and the id of the node that measured them last, or empty."""

    cells: list[Cell]
    home: str = ""


@dataclass(slots=True)
class Task:
    """A shard on a node; `name` is what the node calls itself, empty until the task has begun."""

    shard: Shard
    node: Node
    name: str = ""


def cut_shards(
    cells: Sequence[Cell], nodes: Sequence[Node], count: int, history: Sequence[BundleContents]
) -> list[Shard]:
    """About `count` shards, the longest first; the cells of a model in one phase stay together, in the plan's order.

    `history` are earlier runs, the newest first. Where it has nodes of the cluster, a model goes back to the node that
    measured it last as long as that leaves no node much longer than the others (`jobs.plan.schedule.shares`).

    Raises:
        ValueError: no node, or no shard.
    """
    model = CostModel.learn(item for run in history for item in run.measurements)
    homes = _homes(nodes, history)
    if homes.keys() & {group_of(cell) for cell in cells}:
        each = math.ceil(count / len(nodes))
        by_node = zip(nodes, shares(cells, model, len(nodes), homes), strict=True)
        parts = [Shard(part, node.node_id) for node, share in by_node for part in shares(share, model, each)]
    else:
        parts = [Shard(part) for part in shares(cells, model, count)]
    filled = [shard for shard in parts if shard.cells]
    return sorted(filled, key=lambda shard: -sum(model.estimate(cell).worker_s for cell in shard.cells))


def split(cells: Sequence[Cell]) -> list[Shard]:
    """A shard for each model and phase."""
    groups: dict[Group, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group_of(cell), []).append(cell)
    return [Shard(part) for part in groups.values()]


def _homes(nodes: Sequence[Node], history: Sequence[BundleContents]) -> dict[Group, int]:
    """The node that measured each group last. Nodes that share a host name cannot be told apart and are left out."""
    hosts = [node.host for node in nodes]
    numbers = {host: number for number, host in enumerate(hosts) if hosts.count(host) == 1}
    homes: dict[Group, int] = {}
    for run in history:
        number = numbers.get(str(run.header.testbed.get("node", "")))
        for item in run.measurements if number is not None else ():
            homes.setdefault(group_of(item.cell), number)  # type: ignore[arg-type]
    return homes


def costs_of(cells: Sequence[Cell], history: Sequence[BundleContents]) -> dict[str, str]:
    """Bundles by file name with what a node needs to plan these cells: their times, their memory and their last GPUs."""
    groups, texts = {group_of(cell) for cell in cells}, {}
    for run in history:
        records: list[dict[str, Any]] = [{"record": "run", "format": FORMAT, **run.header.to_json()}]
        for item in run.measurements:
            if group_of(item.cell) in groups:
                details = {name: item.details[name] for name in _COST_DETAILS if name in item.details}
                short = replace(item, samples={}, details=details, log_tail=None, failure=None)
                records.append({"record": "measurement", **short.to_json()})
        if len(records) > 1:
            texts[f"{run.header.run_id}.jsonl"] = "".join(json.dumps(record) + "\n" for record in records)
    return texts


@dataclass(slots=True)
class ClusterNight:
    """Measures the shards of a night and stores their bundles; `left` has the cells without an outcome, by `cell_id`.

    `folder` takes the bundles; `store` ingests one and returns a line about it. `history` are earlier runs, the newest first.
    """

    cluster: RayCluster
    request: Request
    left: dict[str, Cell]
    folder: Path
    progress: RunProgress
    store: Callable[[Path], str] | None = None
    history: Sequence[BundleContents] = ()
    run_ids: list[str] = field(default_factory=list)
    _queue: list[Shard] = field(default_factory=list)
    _tasks: dict[Any, Task] = field(default_factory=dict)
    #: The nodes that get no further shard, with the reason; empty for those that died.
    _unusable: dict[str, str] = field(default_factory=dict)
    _losses: Counter[str] = field(default_factory=Counter)
    _idle_since: float | None = None

    def run(self, shards: Sequence[Shard]) -> None:
        """Measures the shards and returns when none is left, or the time is over.

        Raises:
            ClusterError: no node is left that could measure.
        """
        self._queue = list(shards)
        try:
            while self._tasks or (self._queue and self.request.left_s):
                if self.request.left_s:
                    self._start_tasks()
                else:
                    self._withdraw()
                for handle in self.cluster.ready(list(self._tasks), _LOOK_S):
                    self._hear(handle)
        finally:
            for handle in self._tasks:
                self.cluster.cancel(handle)

    def say(self, text: str) -> None:
        """Prints a line."""
        self.progress.console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)

    def _start_tasks(self) -> None:
        """Starts the next shard on each idle node: one that was measured there last, else one without a usable home."""
        nodes = [node for node in self.cluster.nodes() if node.node_id not in self._unusable]
        usable = usable_nodes(nodes, next(iter(self.left.values())).device) if self.left else []
        ids, busy = {node.node_id for node in usable}, {task.node.node_id for task in self._tasks.values()}
        for node in usable:
            fitting = (shard for shard in self._queue if shard.home == node.node_id or shard.home not in ids)
            if node.node_id in busy or (shard := next(fitting, None)) is None:
                continue
            self._queue.remove(shard)
            text = json.dumps(replace(self.request, cells=shard.cells).to_json())
            self._tasks[self.cluster.start(node, text, costs_of(shard.cells, self.history))] = Task(shard, node)
        if usable or self._tasks:
            self._idle_since = None
        else:
            self._wait_for_a_node()

    def _wait_for_a_node(self) -> None:
        reasons = "; ".join(dict.fromkeys(filter(None, self._unusable.values())))
        self._idle_since = time.monotonic() if self._idle_since is None else self._idle_since
        if reasons or time.monotonic() - self._idle_since >= _PATIENCE_S:
            raise ClusterError(f"no node of the cluster is left to measure on: {reasons or 'all were lost'}")

    def _withdraw(self) -> None:
        """Cancels the tasks that have not begun."""
        for handle in [handle for handle, task in self._tasks.items() if not task.name]:
            self.cluster.cancel(handle)
            del self._tasks[handle]

    def _hear(self, handle: Any) -> None:
        task = self._tasks[handle]
        try:
            message = self.cluster.take(handle)
        except LostError as error:
            del self._tasks[handle]
            self._lose(task, str(error))
            return
        if "bundles" in message:
            del self._tasks[handle]
            self._finish(task, message)
            return
        task.name = str(message["node"])
        note = f", {message['note']}" if message["note"] else ""
        self.say(f"node {task.name} measures {counted(len(task.shard.cells), 'cell')}{note}")

    def _finish(self, task: Task, message: Mapping[str, Any]) -> None:
        code, reason = int(message["code"]), str(message["reason"])
        try:
            for name, data in message["bundles"].items():
                self._save(self.folder / Path(name).name, data)
        except (BundleError, FileExistsError) as error:
            code, reason = 1, str(error)
        if code in _KILLED or code < 0:
            self._lose(task, "its process was killed")
        elif code:
            self._unusable[task.node.node_id] = reason
            left = self._left_of(task)
            elsewhere = f": {counted(len(left), 'cell')} planned for others" if left else ""
            self.say(f"node {task.name} gets no more cells ({reason}){elsewhere}")
            self._queue += split(left)

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

    def _lose(self, task: Task, reason: str) -> None:
        if not task.name:  # Ray lists a dead node for some seconds more
            self._unusable[task.node.node_id] = ""
            self._queue.append(task.shard)
            return
        left = self._left_of(task)
        self._losses.update(cell.cell_id for cell in left)
        again = [cell for cell in left if self._losses[cell.cell_id] < _ATTEMPTS]
        self.say(f"node {task.name} was lost ({reason}): {counted(len(again), 'cell')} planned again")
        for cell in left:
            if cell not in again:
                self.say(f"{cell}: lost with its node {_ATTEMPTS} times, not tried again")
        self._queue += split(again)

    def _left_of(self, task: Task) -> list[Cell]:
        return [cell for cell in task.shard.cells if cell.cell_id in self.left]


def counted(number: int, word: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {word}{'s' * (number != 1)}"
