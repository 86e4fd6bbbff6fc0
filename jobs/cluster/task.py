"""A Ray task: starts the process that measures a group of cells on its node, and hands on what that says, line by line.

A process of its own, since Ray's workers have an environment that Ray has changed, and threads. Texts of JSON go in and come
out, no object that has to be unpickled:

    {"node": ID, "name": TEXT}      first: which of Ray's nodes this is, and what it is called in a testbed
    {"run": RUN_ID, "line": RECORD} a line of a bundle
    {"note": TEXT}                  something that people should know of the node
    {"error": TEXT}                 the node cannot go on
    {"done": true}                  last: everything was measured, or the time is over
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryFile

#: Seconds that a process has to end its cells when it is told to end.
_PATIENCE_S = 20
#: Seconds after which a waiting task looks whether it was cancelled.
_LOOK_S = 0.5
#: How a process ends that was interrupted, or whose shell says that it was killed.
_KILLED = (130, 137)
#: What Ray sets to the number of a task's CPUs where nobody has set it: torch's threads are those of our own workers.
_THREADS = "OMP_NUM_THREADS"


def measure_group(request: str) -> Generator[str]:
    """Yields the messages of a task; `request` is the JSON of `jobs.cluster.request.Request`."""
    import ray

    name = os.environ.get("INDUCTOR_WATCH_NODE") or platform.node()
    yield json.dumps({"node": ray.get_runtime_context().get_node_id(), "name": name})
    yield from follow([sys.executable, "-m", "jobs.cluster.worker"], request)


def follow(command: list[str], request: str) -> Generator[str]:
    """Runs a measuring process and yields what it says; closing the generator ends it and its cells."""
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=_environment()
        )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - pipes were asked for
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
            for line in lines(process.stdout.fileno()):
                yield line.decode()
            code = process.wait()
        finally:
            end(process)
        if code == 0:
            yield json.dumps({"done": True})
        if code == 0 or code in _KILLED or code < 0:
            return  # without a last word a task counts as lost, and its node as none the worse
        errors.seek(0)
        said = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
        reason = said[-1].removeprefix("inductor-watch: ").removeprefix("Error: ") if said else "no word"
        yield json.dumps({"error": reason[:500]})


def lines(descriptor: int) -> Generator[bytes]:
    """The whole lines of a pipe as they come; between two of them this process can be interrupted."""
    pending = b""
    while True:
        # Ray cancels a task by a flag that Python looks at between two steps: a read that waits would not see it.
        if not select.select([descriptor], [], [], _LOOK_S)[0]:
            continue
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return
        *whole, pending = (pending + chunk).split(b"\n")
        yield from whole


def end(process: subprocess.Popen[bytes]) -> None:
    """Has the process end its cells and itself, by closing its standard input; by force where that takes too long."""
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment() -> dict[str, str]:
    """This process's variables less what Ray has added, and where to find this program."""
    found = dict(os.environ)
    if _THREADS not in _at_start():
        found.pop(_THREADS, None)
    root = str(Path(__file__).resolve().parents[2])
    return found | {"PYTHONPATH": os.pathsep.join([root, *([found["PYTHONPATH"]] if "PYTHONPATH" in found else [])])}


def _at_start() -> set[str]:
    """Names of the variables that this process was started with."""
    return {entry.partition(b"=")[0].decode() for entry in Path("/proc/self/environ").read_bytes().split(b"\0")}
