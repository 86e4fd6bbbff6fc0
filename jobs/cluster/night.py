"""The shards of a night on a cluster: one at a time on each node, and again elsewhere if they are lost.

A node that refuses (another torch, a missing library, a GPU that stopped answering) gets no further shard.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents, BundleError, read_bundle
from collector.output_file import write_output
from collector.vocabulary import Cell
from jobs.cluster.ray_cluster import ClusterError, LostError, Node, RayCluster, usable_nodes
from jobs.output.tables import say
from jobs.output.terminal import several
from jobs.plan.cost import CostModel
from jobs.plan.schedule import Group, group_of, last_places, shares
from jobs.pool.child import INTERRUPTED, Request
from jobs.pool.progress import RunProgress

#: How often a cell may be lost with its node before it is given up.
_ATTEMPTS = 3
#: Seconds between two looks at the cluster while no task has a message.
_LOOK_S = 1.0
#: Seconds without a node that could measure after which a night ends: a lost node may be replaced meanwhile.
_PATIENCE_S = 60.0
#: Exit codes of a child that was killed or interrupted, as a shell spells them.
_KILLED = (INTERRUPTED, 137)


@dataclass(slots=True)
class Shard:
    """The cells of a task. `home` is the id of the node that measured them last, or empty.

    `node` measures them now, and calls itself `name` once it has begun.
    """

    cells: list[Cell]
    home: str = ""
    node: str = ""
    name: str = ""


def cut_shards(
    cells: Sequence[Cell], nodes: Sequence[Node], count: int, history: Sequence[BundleContents]
) -> list[Shard]:
    """About `count` shards, the longest first; the cells of a model in one phase stay together, in the plan's order.

    `history` are earlier runs, the newest first. Where it has nodes of the cluster, a model goes back to the node that
    measured it last as long as that leaves no node much longer than the others (`jobs.plan.schedule.shares`).
    """
    model = CostModel.of_history(history)
    homes = _homes(nodes, history)
    if homes.keys() & {group_of(cell) for cell in cells}:
        each = math.ceil(count / len(nodes))
        by_node = zip(nodes, shares(cells, model, len(nodes), homes), strict=True)
        parts = [Shard(part, node.node_id) for node, share in by_node for part in shares(share, model, each)]
    else:
        parts = [Shard(part) for part in shares(cells, model, count)]
    filled = [shard for shard in parts if shard.cells]
    return sorted(filled, key=lambda shard: -sum(model.estimate(cell).worker_s for cell in shard.cells))


def _homes(nodes: Sequence[Node], history: Sequence[BundleContents]) -> dict[Group, int]:
    """The node that measured each group last. Nodes that share a host name cannot be told apart and are left out."""
    hosts = Counter(node.host for node in nodes)
    numbers = {node.host: number for number, node in enumerate(nodes) if hosts[node.host] == 1}
    return last_places(history, lambda testbed: numbers.get(str(testbed.get("node", ""))))


@dataclass(slots=True)
class ClusterNight:
    """Measures the shards of a night and stores their bundles; `left` has the cells without an outcome, by `cell_id`.

    `folder` takes the bundles; `store` ingests one and returns a line about it.
    """

    cluster: RayCluster
    request: Request
    left: dict[str, Cell]
    folder: Path
    progress: RunProgress
    store: Callable[[Path], str] | None = None
    run_ids: list[str] = field(default_factory=list)
    _queue: list[Shard] = field(default_factory=list)
    _running: dict[Any, Shard] = field(default_factory=dict)
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
        """Prints a line."""
        say(self.progress.console, text)

    def _cancel(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            self.cluster.cancel(handle)
            del self._running[handle]

    def _start_tasks(self) -> None:
        """Starts the next shard on each idle node: one that was measured there last, else one without a usable home."""
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

    def _finish(self, shard: Shard, message: Mapping[str, Any]) -> None:
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

    def _lose(self, shard: Shard, reason: str) -> None:
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
        """Queues a shard for each model and phase: one that takes its node down is alone next time."""
        groups: dict[Group, list[Cell]] = defaultdict(list)
        for cell in cells:
            groups[group_of(cell)].append(cell)
        self._queue += map(Shard, groups.values())
