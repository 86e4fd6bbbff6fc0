"""Measure one cell: read one request, and report stages and the outcome by JSON lines on a separate pipe.

Standard output and error belong to the model and the compiler, so that none of their output is mistaken for a report.

    request (standard input, one line)   {"cell": {...}, "settings": {...}}
    report (descriptor --report, lines)  {"stage": "compile"} ... {"outcome": {...}}
                                         {"ask": "measure", "bytes": 5, "at": 71.5}, answered on standard input by
                                         {"idle_ms": 3.1, "room_bytes": 9}, then {"done": true, "bytes": 2}
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from collector.failures import classify
from collector.settings import Settings
from collector.vocabulary import Cell, Stage

if TYPE_CHECKING:
    from collector.device import Device

#: On this signal a measuring process prints its Python stacks and goes on.
STACK_SIGNAL = signal.SIGUSR1


class PipeHost:
    """The parent as seen by a cell: it gets the stages and grants the device, over the report pipe and standard input.

    `reserved` returns the bytes of device memory that this process keeps when it gives the device back.
    """

    def __init__(self, report: IO[str], answers: IO[str], reserved: Callable[[], int] = lambda: 0) -> None:
        self._report, self._answers = report, answers
        self.reserved = reserved
        self._holds: list[_Hold] = []
        self.idle_ms = self.eager_ms = 0.0
        self.room_bytes: int | None = None
        self.promised_bytes: int | None = None

    def send(self, message: dict[str, Any]) -> None:
        """Write one line and flush it."""
        self._report.write(json.dumps(message, separators=(",", ":"), allow_nan=False) + "\n")
        self._report.flush()

    def stage(self, stage: Stage) -> None:
        """Report the stage to the parent."""
        self.send({"stage": stage.value})

    @contextmanager
    def exclusive(self, purpose: str = "measure", needs: int | None = None) -> Iterator[None]:
        """Hold the device in this context (`collector.measure.cell.Host`). In nested holds the inner one adds to the outer."""
        self.take(purpose, needs)
        try:
            yield
        finally:
            self.give_back()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Give the device back in this context, if it is held, and take it again afterwards for the former purpose."""
        held, self._holds = self._holds, []
        if held:
            self._tell_done()
        try:
            yield
        finally:
            self._holds = held
            if held:
                self._ask(held[-1])

    def take(self, purpose: str, needs: int | None = None) -> None:
        """Wait until the parent grants the device to this cell; `give_back` ends the hold."""
        inner = _Hold(purpose, needs)
        if not self._holds:
            self._ask(inner)
        elif (more := inner.beside(self._holds[-1])) != self._holds[-1]:
            self._tell_done()
            self._ask(inner := more)
        else:
            inner = more
        self._holds.append(inner)

    def give_back(self) -> None:
        """End the last hold, and return to the hold before it, if any."""
        ended = self._holds[-1]
        outer = self._holds[-2] if len(self._holds) > 1 else None
        if outer != ended:
            self._tell_done()
            if outer:
                self._ask(outer)
        self._holds.pop()

    def _ask(self, hold: _Hold) -> None:
        self.send({"ask": hold.purpose, "bytes": hold.needs, "at": time.monotonic()})
        if not (answer := self._answers.readline()):
            raise SystemExit("the process that started this cell has ended")
        granted = json.loads(answer)
        self.idle_ms, self.eager_ms = float(granted["idle_ms"]), float(granted.get("eager_ms", 0.0))
        self.room_bytes, self.promised_bytes = granted.get("room_bytes"), granted.get("promised_bytes")

    def _tell_done(self) -> None:
        self.send({"done": True, "bytes": self.reserved()})


#: The purposes of a hold (`collector.measure.cell.Host`), from the weakest to the strongest.
_PURPOSES = ("device", "tune", "measure", "choose", "still")


@dataclass(frozen=True, slots=True)
class _Hold:
    """A hold of the device: its purpose, and the bytes of device memory that this process needs in it."""

    purpose: str
    needs: int | None

    def beside(self, outer: _Hold) -> _Hold:
        """Return a hold that covers this one and the outer one."""
        needs = [one for one in (self.needs, outer.needs) if one is not None]
        return _Hold(max(self.purpose, outer.purpose, key=_PURPOSES.index), max(needs, default=None))


def serve(request: dict[str, Any], host: PipeHost) -> None:
    """Measure the requested cell and report its outcome."""
    # Imported here: torch sizes its thread pools by the cores that it finds on import, and a pool larger than the cores of
    # this process makes every operator wait for a thread that cannot run.
    from collector.device import device_named, is_accelerator
    from collector.measure.autotuning import hold_device_while_tuning
    from collector.measure.candidates import (
        MainThread,
        compile_candidates_beside,
        compile_in_processes,
        use_one_assembler,
    )
    from collector.measure.cell import measure
    from collector.zoo.registry import find

    cell, settings = Cell.from_json(request["cell"]), Settings.from_json(request["settings"])
    spec = find(cell.suite, cell.model, settings.own_models)
    device = device_named(cell.device)
    host.reserved = device.reserved

    @contextmanager
    def released() -> Iterator[None]:
        device.synchronize()  # finish the work that was launched before
        with host.released():
            yield

    hold_device_while_tuning(host.exclusive, released)
    use_one_assembler()
    compile_in_processes(settings.compile_cores)
    compile_candidates_beside(MainThread())
    if settings.explain:
        from collector.measure.explaining import explain

        with host.exclusive("device"):
            outcome = explain(cell, spec.build, settings)
    else:
        traced = start_trace(cell, settings.trace)
        outcome = measure(cell, spec.build, settings, host)
        if traced:
            outcome.measurement.details["trace"] = traced
    host.send({"outcome": outcome.to_json()})
    if is_accelerator(cell.device):
        leave(device, host)


def leave(device: Device, host: PipeHost) -> None:
    """Free all that this process has on the device in a last hold, which lasts to the end of the process.

    The driver overwrites freed memory, for 2 ms each GB on an H200, and meanwhile the kernels of a cell that measures take up
    to a tenth longer (docs/measuring.md). In a hold this process is stopped for such a cell.
    """
    host.take("device", 0)
    device.leave()


#: The logger of torch's structured trace.
_TRACE_LOG = "torch.__trace"


def start_trace(cell: Cell, root: str) -> str | None:
    """Make torch write its structured trace of this process (for `tlparse`) into a folder of the cell under `root`.

    `TORCH_TRACE` acts only when torch is imported, which is long past in a forked process. Return the cell's folder, relative
    if `root` is relative; return None if `root` is "" or this torch has no such trace.
    """
    if not root:
        return None
    from torch._logging import _internal

    handler: Any = getattr(_internal, "LOG_TRACE_HANDLER", None)
    if handler is None or not hasattr(handler, "root_dir"):
        return None
    folder = Path(root).resolve() / cell.cell_id
    folder.mkdir(parents=True, exist_ok=True)
    handler.root_dir = str(folder)
    log = logging.getLogger(_TRACE_LOG)
    if handler not in log.handlers:  # without a folder torch removes its handler at the first message
        log.addHandler(handler)
    return str(Path(root) / cell.cell_id)


def tell_where_on_request() -> None:
    """Make a crash and `STACK_SIGNAL` print the Python stacks of all threads, even of a thread that is stuck in C code."""
    faulthandler.enable(2)
    faulthandler.register(STACK_SIGNAL, 2, all_threads=True)


def write_no_core() -> None:
    """Turn core files off: the file of a process with a GPU may have gigabytes, and writing it delays the cell's end."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def work(report_descriptor: int) -> NoReturn:
    """Serve the request on standard input and end the process."""
    tell_where_on_request()
    write_no_core()
    with os.fdopen(report_descriptor, "w", encoding="utf-8") as report:
        host = PipeHost(report, sys.stdin)
        try:
            serve(json.loads(sys.stdin.readline()), host)
        except Exception as error:
            status, failure = classify(error, Stage.START)
            host.send({"error": {"status": status.value, "failure": failure.to_json()}})
    sys.stdout.flush()
    sys.stderr.flush()
    # Inductor's pools and CUDA's teardown may hang or crash at exit. Everything is reported already.
    os._exit(0)


def main() -> None:
    """Run as `python -m collector.process.worker --report FD`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--report", type=int, required=True, metavar="FD", help="descriptor for report lines")
    work(parser.parse_args().report)


if __name__ == "__main__":
    main()
