"""Measures a task's cells on the node that it is started on: `python -m jobs.cluster.worker`, the request on standard input.

It does what `nightly` does on a host, and says each line of its bundles on standard output as soon as it is on disk:
`{"run": RUN_ID, "line": RECORD}`. The bundles themselves are gone when it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from collector.bundle import BundleWriter
from collector.errors import ConfigError
from collector.vocabulary import Measurement
from collector.zoo.registry import find
from jobs.cli import tool_version
from jobs.cluster.request import Request
from jobs.plan.cost import CostModel
from jobs.plan.duplicate_programs import plan_work
from jobs.plan.schedule import longest_first, shares
from jobs.pool.child import serve
from jobs.pool.host import cell_variables
from jobs.pool.requested_options import to_asked
from jobs.pool.runner import Shift, make_header, measure_shifts
from jobs.pool.testbeds import Testbed, find_testbeds


class NodeError(ConfigError):
    """This node cannot take part in the night; the text says why."""


def measure(request: Request, out: IO[str]) -> None:
    """Measures the cells with the host's own pool, on all GPUs that the task was given.

    Raises:
        NodeError: another torch or another version of this program than the driver's, or a model that is not here.
        HostError, PlaceError: no torch, no GPU, or fewer cores than workers.
        LostDeviceError: a GPU stopped answering; what was measured before has been said.
    """
    if request.left_s <= 0:
        return
    os.environ.update(request.variables or {})
    check_models(request)
    testbeds = find_testbeds(request.cells[0].device, request.pace, serve=True)
    check_torch(request, testbeds)
    for testbed in testbeds:
        testbed.import_for(request.cells)
    with TemporaryDirectory(prefix="inductor-watch-") as folder:
        tail = Tail(out)
        model = CostModel.learn(request.known)
        shifts = _shifts(request, testbeds, model, Path(folder), tail)
        pace = replace(testbeds[0].pace, budget_s=max(0.0, request.left_s))

        def tell(_: Measurement) -> None:
            tail.tell()

        result = measure_shifts(
            shifts,
            request.settings,
            tell,
            cell_variables(pace.start),
            pace,
            lambda cell: model.estimate(cell).memory_bytes,
        )
    if result.lost:
        raise result.lost


def _shifts(request: Request, testbeds: Sequence[Testbed], model: CostModel, folder: Path, tail: Tail) -> list[Shift]:
    shared = shares(request.cells, model, len(testbeds), _sticky(request, testbeds))
    shifts = []
    for testbed, cells in zip(testbeds, shared, strict=True):
        asked = to_asked(request.settings, testbed.pace, testbed.environment)
        header = make_header(testbed.environment, request.names, tool_version(), asked, request.names.night)
        work = plan_work(cells)
        ordered = longest_first(work.cells, model, testbed.pace.at_once, request.left_s)
        writer = BundleWriter(folder, header, cells)
        tail.follow(header.run_id, writer.path)
        shifts.append(Shift(replace(work, cells=ordered), testbed.place, testbed.environment, writer, testbed.launcher))
    return shifts


def _sticky(request: Request, testbeds: Sequence[Testbed]) -> dict[tuple[str, str, str], int]:
    """The GPU of this node that measured a group last, by its place among the testbeds."""
    here = {
        (str(item.environment.get("node", "")), item.environment.get("gpu_index")): number
        for number, item in enumerate(testbeds)
    }
    return {group: here[spot] for group, spot in (request.last or {}).items() if spot in here}


class Tail:
    """Says the lines of growing files, each once."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._places: dict[Path, tuple[str, int]] = {}

    def follow(self, run_id: str, path: Path) -> None:
        """From now on the lines of this run's file are told as well."""
        self._places[path] = (run_id, 0)

    def tell(self) -> None:
        """Says what has come since the last time; only whole lines."""
        for path, (run_id, told) in self._places.items():
            with closing(path.open("rb")) as stream:
                stream.seek(told)
                whole, newline, _ = stream.read().rpartition(b"\n")
            for line in whole.splitlines():
                self._out.write(json.dumps({"run": run_id, "line": json.loads(line)}, separators=(",", ":")) + "\n")
            self._places[path] = (run_id, told + len(whole) + len(newline))
        self._out.flush()


def check_models(request: Request) -> None:
    """Raises `NodeError` where this program is another one, or the models' libraries are not here."""
    if request.tool != tool_version():
        raise NodeError(f"inductor-watch {tool_version()} there, {request.tool} where the night was planned")
    missing = {name for cell in request.cells for name in find(cell.suite, cell.model).missing()}
    if missing:
        raise NodeError(f"{', '.join(sorted(missing))} not installed there, and planned models need it")


def check_torch(request: Request, testbeds: Sequence[Testbed]) -> None:
    """Raises `NodeError` where another torch would measure than the one that the night was planned with."""
    ours = str(testbeds[0].environment["torch_git"])
    if ours != request.torch_git:
        raise NodeError(f"torch {ours[:12]} there, {request.torch_git[:12]} where the night was planned")


def be_as_nice_as_anybody() -> str:
    """Takes back the niceness that Ray gives its workers (15, unless its nodes are told otherwise), or says that it cannot."""
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) > 0:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    return f"measures with niceness {nice}: start Ray there with RAY_worker_niceness=0" if nice > 0 else ""


def main(told: dict[str, Any]) -> None:
    """Measures what was told; what anybody prints goes to standard error, lines of bundles alone to standard output."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if note := be_as_nice_as_anybody():
        out.write(json.dumps({"note": note}) + "\n")
    measure(Request.from_json(told), out)


if __name__ == "__main__":
    serve(main)
