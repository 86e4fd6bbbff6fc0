"""All that this program asks of Ray: connect, name the nodes, start a task, take what it says, cancel it.

Ray schedules: a task says what it needs (`Share`) and, at most, where it would like to be or must not be.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click

#: Bytes of a local cluster's object store: lines of bundles are all that is ever in it.
_STORE_BYTES = 80_000_000
#: Seconds to wait for a cluster's address to answer at all; Ray itself waits for two minutes.
_ANSWER_S = 5.0
_MISSING = "Ray is not installed: pip install ray, or leave out --executor ray"


class ClusterError(click.ClickException):
    """No cluster to be had, or none of its nodes can measure; the text says why and what to do."""

    exit_code = 4


class LostError(Exception):
    """A task ended without its last word: its node, or its worker there, is gone."""


@dataclass(frozen=True, slots=True)
class Node:
    """A living node: Ray's id, its host's name, and what it has for tasks."""

    node_id: str
    host: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a task takes of a node: so much that no second one fits beside it."""

    cpus: int
    gpus: int

    def fits(self, node: Node) -> bool:
        """Whether a node has that much."""
        return node.cpus >= self.cpus and node.gpus >= self.gpus


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a task would like to run (a node's id, or empty), and where it must not."""

    node: str = ""
    never: Collection[str] = ()


class Engine(Protocol):
    """What the night needs of a cluster."""

    def nodes(self) -> list[Node]:
        """The living nodes."""

    def start(self, request: str, share: Share, wish: Wish) -> Any:
        """Hands a task to the scheduler; returns its handle."""

    def ready(self, handles: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those that have something to say, after `timeout_s` seconds at the latest."""

    def take(self, handle: Any) -> str | None:
        """The next message of a task that is ready; None after its last. Raises `LostError`."""

    def cancel(self, handle: Any) -> None:
        """Ends a task, or takes it from the queue."""


def share_of(nodes: Sequence[Node], device: str) -> Share:
    """What a task asks for so that it has its node to itself: the least that nodes have which have more than half of the most.

    Of a node with more than that nobody else gets a whole share; smaller nodes take no part.

    Raises:
        ClusterError: no node has a CPU, or a GPU where the device is one.
    """
    if device == "cuda":
        nodes = [node for node in nodes if node.gpus]
        if not nodes:
            raise ClusterError("no node of the cluster has a GPU: use --device cpu, or see `ray status`")
        gpus = _most_shared([node.gpus for node in nodes])
        cpus = min((node.cpus for node in nodes if node.gpus >= gpus), default=0)
        return Share(cpus, gpus)
    counts = [node.cpus for node in nodes if node.cpus]
    if not counts:
        raise ClusterError("no node of the cluster has a CPU for tasks: see `ray status`")
    return Share(_most_shared(counts), 0)


def _most_shared(counts: Sequence[int]) -> int:
    return min(count for count in counts if 2 * count > max(counts))


class RayEngine:
    """A cluster by Ray's own interface."""

    def __init__(self, ray: Any) -> None:
        from jobs.cluster.task import measure_group

        self._ray = ray
        # Ray would begin a lost task from its start; what it has measured is known here, so the rest is planned anew here.
        self._task = ray.remote(num_returns="streaming", max_retries=0)(measure_group)

    def nodes(self) -> list[Node]:
        """The living nodes, by their hosts' names."""
        found = [
            Node(
                item["NodeID"],
                item["NodeManagerHostname"],
                int(item["Resources"].get("CPU", 0)),
                int(item["Resources"].get("GPU", 0)),
            )
            for item in self._ray.nodes()
            if item["Alive"]
        ]
        return sorted(found, key=lambda node: (node.host, node.node_id))

    def start(self, request: str, share: Share, wish: Wish) -> Any:
        """Hands a task to Ray's scheduler; returns its generator."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        placed: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        if wish.never:
            placed = {"label_selector": {"ray.io/node-id": f"!in({','.join(sorted(wish.never))})"}}
        elif wish.node:
            placed = {"scheduling_strategy": NodeAffinitySchedulingStrategy(wish.node, soft=True)}
        return self._task.options(num_cpus=share.cpus, num_gpus=share.gpus, **placed).remote(request)

    def ready(self, handles: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those that have something to say, after `timeout_s` seconds at the latest."""
        found, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0, fetch_local=False)
        if not found:
            found, _ = self._ray.wait(list(handles), num_returns=1, timeout=timeout_s, fetch_local=False)
        return list(found)

    def take(self, handle: Any) -> str | None:
        """The next message of a task that is ready; None after its last. Raises `LostError`."""
        try:
            return str(self._ray.get(next(handle)))
        except StopIteration:
            return None
        except self._ray.exceptions.RayError as error:
            raise LostError(type(error).__name__) from error

    def cancel(self, handle: Any) -> None:
        """Ends a task, or takes it from the queue."""
        self._ray.cancel(handle)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[RayEngine]:
    """A connection to the cluster at an address, or to one of this host alone that ends with it.

    What Ray prints meanwhile goes to standard error. Nothing is reported to anybody (`RAY_USAGE_STATS_ENABLED=0`), and no
    dashboard is started.

    Raises:
        click.UsageError: Ray is not installed.
        ClusterError: no cluster answers there.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Of a cluster of this host: else its workers would yield to everybody else's processes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError as error:
        raise click.UsageError(_MISSING) from error
    local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    if address and address != "local":
        check_address(address)
        local = {}
    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **local)
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
            hint = (
                "" if os.environ.get("RAY_AUTH_MODE") else "; one that asks for a token needs RAY_AUTH_MODE=token here"
            )
            raise ClusterError(f"no Ray cluster at {address or 'local'}: {_first_line(error)}{hint}") from error
        try:
            yield RayEngine(ray)
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Raises `ClusterError` if nobody answers at a HOST:PORT, `click.UsageError` for what is no address of a cluster's node."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise click.UsageError(
            f"--address {address[:80]!r}: write HOST:PORT of the cluster's head, or auto, on a node of the cluster"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster at {address}: {error}; `ray start --head` starts one") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
