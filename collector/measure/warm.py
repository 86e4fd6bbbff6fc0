"""A second compilation of a cell's program, in a new process, from the caches that the cell has just filled.

request (standard input, one line)   {"cell": {...}, "settings": {...}, "modules": [NAME, ...], "headers": FOLDER}
answer (standard output, last line)  {"seconds": 1.2, "window": [BEGIN, END], "cache_hits": 1}
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from collector.failures import reason_of
from collector.settings import Settings
from collector.vocabulary import Cell

#: Packages whose modules a compilation imports.
_PACKAGES = ("torch", "triton", "sympy", "mpmath", "networkx", "jinja2")


@dataclass(frozen=True, slots=True)
class WarmCompile:
    """A compilation with full caches: its seconds, its begin and end on the monotonic clock, and the number of cache hits."""

    seconds: float
    window: tuple[float, float]
    cache_hits: int


class NoWarmCompileError(Exception):
    """A second process without a result; the text says why in one line."""


def compile_again(cell: Cell, settings: Settings) -> WarmCompile:
    """Compile the cell in a new process that has this process's environment, cores, settings and caches.

    The new process first imports the modules of this one, so that its compile time contains no imports, as in a forked cell.
    Raises `NoWarmCompileError` if it fails or takes too long.
    """
    request = {"cell": cell.to_json(), "settings": settings.to_json(), "modules": _imported(), "headers": _headers()}
    command = [sys.executable, "-m", "collector.measure.warm"]
    try:
        answer = subprocess.run(
            command,
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=settings.timeout_s,
            check=True,
        )
        result = json.loads(answer.stdout.splitlines()[-1])
        return WarmCompile(result["seconds"], tuple(result["window"]), result["cache_hits"])
    except (subprocess.SubprocessError, OSError, LookupError, ValueError, TypeError) as error:
        raise NoWarmCompileError(reason_of(error)) from error


def _headers() -> str:
    """Return the folder in which this torch keeps precompiled C++ headers; "" if it keeps none."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return str(getattr(codecache, "_HEADER_DIR", ""))


def _share_headers(folder: str) -> None:
    """Make this process use the first process's folder of precompiled headers, since its own is still empty."""
    from torch._inductor import codecache

    if folder and hasattr(codecache, "_HEADER_DIR"):
        codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR = folder, str(Path(folder) / "locks")


def _imported() -> list[str]:
    # Programs that Inductor generated are modules too, but have no file that another process finds.
    return [name for name, module in list(sys.modules.items()) if name.startswith(_PACKAGES) and _has_file(module)]


def _has_file(module: Any) -> bool:
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return bool(origin) and Path(str(origin)).is_file()


def warm_compile(cell: Cell, settings: Settings) -> WarmCompile:
    """Build the cell's model in this process and return the time of its first compiled call, less a later call."""
    from torch._dynamo.utils import counters

    from collector.measure.dynamic_shapes import load
    from collector.measure.program import seed_everything
    from collector.measure.timing import timed_s
    from collector.templates import resolve_config
    from collector.zoo.registry import find

    settings.flags.apply()  # the flags are part of the caches' keys
    seed_everything()
    subject, _ = load(cell, find(cell.suite, cell.model, settings.own_models).build, settings.optimizer)
    subject.eager()
    compiled = subject.compiled(resolve_config(cell.config, cell.device))
    seed_everything()
    begin = time.monotonic()
    first_s = timed_s(compiled, cell.device)
    end = time.monotonic()
    for _ in range(2):
        compiled()
    later_s = median(timed_s(compiled, cell.device) for _ in range(3))
    hits = counters["inductor"].get("fxgraph_cache_hit", 0) + counters["aot_autograd"].get("autograd_cache_hit", 0)
    return WarmCompile(max(0.0, first_s - later_s), (begin, end), hits)


def main() -> None:
    """Run as `python -m collector.measure.warm`: read the request from standard input and print the answer."""
    request = json.loads(sys.stdin.readline())
    for name in request["modules"]:
        with suppress(Exception):
            importlib.import_module(name)
    _share_headers(request["headers"])
    found = warm_compile(Cell.from_json(request["cell"]), Settings.from_json(request["settings"]))
    print(json.dumps(asdict(found)), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
