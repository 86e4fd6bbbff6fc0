"""The only module that uses Ray: connect to a cluster, list its nodes, start a task on a node, take messages, cancel it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from collector.device import is_accelerator
from collector.masking import excerpt
from jobs.pool.child import Request, bundle_files, clean_environment, code_path, run_child

#: Ray sets this variable to a task's number of CPUs if it is not set; our own workers set the threads of torch.
_THREADS = "OMP_NUM_THREADS"


def measure_shard(request: str) -> Generator[dict[str, Any]]:
    """Yield `{"node": NAME, "note": TEXT}` at the beginning, then `{"bundles": {NAME: BYTES}, "code": EXIT, "reason": TEXT}`.

    `request` is the JSON of a `Request` without its folder.
    """
    yield {"node": os.environ.get("INDUCTOR_WATCH_NODE") or platform.node(), "note": _reset_niceness()}
    with TemporaryDirectory(prefix="inductor-watch-") as folder:
        shard = replace(Request.from_json(json.loads(request)), folder=folder)
        code, reason = run_child(Path(sys.executable), shard, _environment())
        bundles = {path.name: path.read_bytes() for path in bundle_files(Path(folder))}
    yield {"bundles": bundles, "code": code, "reason": reason.removeprefix("inductor-watch: ").removeprefix("Error: ")}


def _reset_niceness() -> str:
    """Reset the niceness that Ray gives its workers (15 by default); return a warning if that is not permitted."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return f", measures with niceness {nice}: start Ray there with RAY_worker_niceness=0" if nice > 0 else ""


def _environment() -> dict[str, str]:
    environ = clean_environment(code_path())
    at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    if not any(entry.startswith(_THREADS.encode() + b"=") for entry in at_start):
        environ.pop(_THREADS, None)
    return environ


#: Bytes of a local cluster's object store: it holds bundles only.
_STORE_BYTES = 80_000_000
#: Seconds to wait for a cluster's address to answer at all; Ray itself waits for two minutes.
_ANSWER_S = 5.0


class ClusterError(click.ClickException):
    """An error for a missing cluster, or one whose nodes cannot measure; its text says why and what to do."""

    exit_code = 4


class LostError(Exception):
    """An error for a task that ended without a result: its node, or its worker there, is gone."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A living node: its host name, Ray's id, and the CPUs and GPUs that it has for tasks."""

    host: str
    node_id: str
    cpus: int
    gpus: int


def usable_nodes(nodes: Sequence[Node], device: str) -> list[Node]:
    """Return the nodes that measure: the nodes with more than half of the GPUs (or CPUs) of the largest node."""
    counts = {node.node_id: node.gpus if is_accelerator(device) else node.cpus for node in nodes}
    return [node for node in nodes if 2 * counts[node.node_id] > max(counts.values())]


class RayCluster:
    """A connected cluster; a task is identified by its handle."""

    def __init__(self, ray: Any) -> None:

        self._ray = ray
        # Lost shards are planned again by the driver, so that a model which takes its node down is alone in a shard next time.
        self._task = ray.remote(num_returns="streaming", max_retries=0)(measure_shard)

    def nodes(self) -> list[Node]:
        """Return the living nodes, sorted by host name."""
        alive = [item for item in self._ray.nodes() if item["Alive"]]
        counts = [[int(item["Resources"].get(name, 0)) for name in ("CPU", "GPU")] for item in alive]
        nodes = [
            Node(item["NodeManagerHostname"], item["NodeID"], *both) for item, both in zip(alive, counts, strict=True)
        ]
        return sorted(nodes)

    def start(self, node: Node, request: str) -> Any:
        """Start `measure_shard` as a task with all of a node's CPUs and GPUs, and return its handle."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._task.options(
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
        )
        return task.remote(request)

    def ready(self, handles: Sequence[Any], timeout_s: float) -> list[Any]:
        """Return the tasks that have a message, after at most `timeout_s` seconds."""
        if not handles:
            time.sleep(timeout_s)
            return []
        ready, _ = self._ray.wait(list(handles), num_returns=1, timeout=timeout_s, fetch_local=False)
        return list(ready)

    def take(self, handle: Any) -> Mapping[str, Any]:
        """Return the next message of a task that is ready. Raises `LostError` if there is none."""
        try:
            message: Mapping[str, Any] = self._ray.get(next(handle))
        except StopIteration:
            raise LostError("no result") from None
        except self._ray.exceptions.RayError as error:
            raise LostError(type(error).__name__) from error
        return message

    def cancel(self, handle: Any) -> None:
        """End a task and its child process."""
        self._ray.cancel(handle)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[RayCluster]:
    """Connect to the cluster at an address, or to a local cluster of this host that ends with the context.

    Ray's output goes to standard error. Nothing is reported to Ray's makers (`RAY_USAGE_STATS_ENABLED=0`), and no dashboard is
    started.

    Raises:
        click.UsageError: Ray is not installed.
        ClusterError: no cluster answers there.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")  # for a cluster of this host
    try:
        import ray
    except ImportError as error:
        raise click.UsageError("Ray is not installed: pip install ray, or leave out --executor ray") from error
    local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    if address and address != "local":
        check_address(address)
        local = {}
    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **local)
        except (ConnectionError, RuntimeError, ValueError, AssertionError) as error:
            reason = excerpt((str(error).strip().splitlines() or [type(error).__name__])[0], 300)
            hint = "" if "RAY_AUTH_MODE" in os.environ else "; one that asks for a token needs RAY_AUTH_MODE=token here"
            raise ClusterError(f"no Ray cluster at {address or 'local'}: {reason}{hint}") from error
        try:
            yield RayCluster(ray)
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Raise `ClusterError` if nothing answers at a HOST:PORT, `click.UsageError` for a text that is no address of a node."""
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
