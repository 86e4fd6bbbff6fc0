"""Generates the cells of a census in a few processes side by side, and yields each outcome as it comes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.census.gpu_models import CensusError, build_runtime, find_gpu
from collector.device import CPU, GPU
from collector.machine.environment import SOURCE_VARIABLE
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Failure, Measurement, Stage, Status
from jobs.pool.runner import now

#: Answers to the questions of a cell: by key the answer and where it is from (`collector.census.questions`).
Answers = Mapping[str, tuple[bool, str]]
#: Characters of a failing cell's log that are kept.
_LOG_TAIL = 4_000
DEFAULT_CACHE = Path("~/.cache/inductor-watch/census")


@dataclass(frozen=True, slots=True)
class CensusPlace:
    """For which device and from which Python files code is generated; `overlay` and `source` as in `ExecutionOptions`.

    `threads` is how many torch uses where the code runs: it writes C++ for so many.
    """

    device_name: str
    overlay: str = ""
    source: str = ""
    cache: Path = DEFAULT_CACHE
    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    threads: int = 1

    @property
    def device(self) -> str:
        """The device of the cells, the GPUs' or `cpu`."""
        return CPU if self.device_name == CPU else GPU

    def variables(self) -> dict[str, str]:
        """Return the environment of a census process. Raises `CensusError` where the GPU's runtime cannot be built."""
        variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.overlay:
            rest = os.environ.get("PYTHONPATH")
            variables["PYTHONPATH"] = os.pathsep.join([self.overlay, *([rest] if rest else [])])
            variables[SOURCE_VARIABLE] = self.source
        if self.device_name != CPU:
            variables["LD_PRELOAD"] = str(build_runtime(find_gpu(self.device_name), self.cache))
        return variables


class CensusPool:
    """The processes of a census at one place. They start at the first cells; use it as a context.

    `imported` are the files of torch that were imported so far, by their paths beside the package.
    """

    def __init__(self, place: CensusPlace, settings: Settings) -> None:
        self.place, self._settings = place, settings
        self._workers: list[_Worker] = []
        self.imported: set[str] = set()

    def __enter__(self) -> CensusPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, also while cells are generated: no further one is."""
        for worker in self._workers:
            worker.is_over = True
            worker.end()

    def generate(self, cells: Sequence[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it comes. `answers` are by `cell_id`.

        Raises `CensusError` where torch does not allow a census, or where the GPU's runtime cannot be built.
        """
        variables = self.place.variables() if len(self._workers) < self.place.workers else {}
        while len(self._workers) < min(self.place.workers, len(cells)):
            self._workers.append(_Worker(self.place, variables))
        waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        for cell in cells:
            waiting.put(cell)
        done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

        def work(worker: _Worker) -> None:
            try:
                while not worker.is_over:
                    cell = waiting.get_nowait()
                    done.put(worker.generate(cell, self._settings, answers.get(cell.cell_id, {})))
            except queue.Empty:
                return
            except Exception as error:
                done.put(error)

        for worker in self._workers:
            threading.Thread(target=work, args=(worker,), daemon=True).start()
        for _ in cells:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            self.imported.update(*(worker.files for worker in self._workers))
            yield outcome


class _Worker:
    """One census process; one that ends is started again for the next cell, unless `is_over`."""

    def __init__(self, place: CensusPlace, variables: Mapping[str, str]) -> None:
        self._place, self._variables = place, dict(variables)
        self.files: set[str] = set()
        self._is_ready = self.is_over = False
        self._start()

    def _start(self) -> None:
        reader, writer = os.pipe()
        theirs, ours = os.pipe()
        words = ["--report", str(writer), "--device-name", self._place.device_name]
        # The child appends through a description of its own: reading here moves no position there.
        self._log = tempfile.NamedTemporaryFile(prefix="inductor-watch-census-", suffix=".log")  # noqa: SIM115
        with open(self._log.name, "ab") as log:  # noqa: PTH123
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "collector.census.census_process",
                    *words,
                    "--threads",
                    str(self._place.threads),
                ],
                stdin=theirs,
                stdout=log,
                stderr=log,
                env=self._variables,
                pass_fds=[writer],
            )
        os.close(writer)
        os.close(theirs)
        self._requests = os.fdopen(ours, "w", encoding="utf-8")
        self._report = os.fdopen(reader, encoding="utf-8")

    def _await_ready(self) -> None:
        message = self._receive()
        if "ready" not in message:
            raise CensusError(message.get("refused") or f"the census does not start: {self._last_line()}")
        self._is_ready = True

    def generate(self, cell: Cell, settings: Settings, answers: Answers) -> Outcome:
        """Return the outcome of a cell. Raises `CensusError` if the process does not start."""
        if not self._is_ready:
            self._await_ready()
        start, began = Path(self._log.name).stat().st_size, now()
        request = {"cell": cell.to_json(), "settings": settings.to_json(), "answers": dict(answers)}
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            message = self._receive()
        except BrokenPipeError:
            message = {}
        if "outcome" in message:
            outcome = Outcome.from_json(message["outcome"])
        else:
            how = message.get("died") or message.get("refused") or self._ended()
            outcome = _died(cell, began, how, settings.timeout_s)
        if outcome.measurement.status not in (Status.NOT_CHECKED, Status.UNAVAILABLE):
            log = Path(self._log.name).read_bytes()[start:]
            outcome.measurement.log_tail = log.decode("utf-8", "replace")[-_LOG_TAIL:] or None
        if self._process.poll() is not None and not self.is_over:
            self.end()
            self._is_ready = False
            self._start()
        return outcome

    def _ended(self) -> str:
        """Return how the process itself ended."""
        self._process.wait()
        code = self._process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def end(self) -> None:
        """End the process and its cell."""
        self._process.kill()
        self._process.wait()
        for stream in (self._requests, self._report, self._log):
            with suppress(OSError):  # a request that nobody reads any more
                stream.close()

    def _receive(self) -> dict[str, Any]:
        for line in self._report:
            try:
                message = json.loads(line)
            except ValueError:  # a cell died in the middle of its line, or left an empty one
                continue
            self.files = self.files.union(message.get("files", ()))
            return dict(message)
        return {}

    def _last_line(self) -> str:
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


def _died(cell: Cell, began: str, how: str, timeout_s: float) -> Outcome:
    is_slow = how == "timeout"
    message = f"not generated within {timeout_s:g} s" if is_slow else f"the process of the cell ended with {how}"
    status = Status.TIMEOUT if is_slow else Status.CRASHED
    failure = Failure(Stage.COMPILE, "Timeout" if is_slow else "Crash", message)
    return Outcome(Measurement(cell, status, began, timeout_s if is_slow else 0.0, failure=failure))
