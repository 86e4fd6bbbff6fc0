"""The function that Ray runs on a node: it measures a shard of the night in a child process and returns the bundles."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.pool.child import Request, bundle_files, clean_environment, code_path, run_child

#: Ray sets this to the number of a task's CPUs where nobody has set it; the threads of torch are set by our own workers.
_THREADS = "OMP_NUM_THREADS"


def measure_shard(request: str) -> Generator[dict[str, Any]]:
    """Yields `{"node": NAME, "note": TEXT}` when it begins, then `{"bundles": {NAME: BYTES}, "code": EXIT, "reason": TEXT}`.

    `request` is the JSON of a `Request` without its folder.
    """
    yield {"node": os.environ.get("INDUCTOR_WATCH_NODE") or platform.node(), "note": _reset_niceness()}
    with TemporaryDirectory(prefix="inductor-watch-") as folder:
        shard = replace(Request.from_json(json.loads(request)), folder=folder)
        code, reason = run_child(Path(sys.executable), shard, _environment())
        bundles = {path.name: path.read_bytes() for path in bundle_files(Path(folder))}
    yield {"bundles": bundles, "code": code, "reason": reason.removeprefix("inductor-watch: ").removeprefix("Error: ")}


def _reset_niceness() -> str:
    """Takes back the niceness that Ray gives its workers (15 by default); returns a warning where that is not permitted."""
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
