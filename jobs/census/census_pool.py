"""Generate the cells of a census side by side, and cache each outcome.

The cache key is a digest of everything that the code was generated from, so a commit that changes none of it costs nothing. A
census process reports which files of torch it imported. The key contains these files, with comments and layout left out, and
everything else that the code depends on: the wheel, the other libraries, the device, the settings that affect the code, this
program's own collector, the cell, a user's own model and the answers to the cell's questions. A file that was not imported
matters only once another file imports it, and that file then has changed.
"""

from __future__ import annotations

import ast
import fcntl
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import collector
from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError, build_runtime, find_gpu
from collector.code import NAME_OF_SOURCE
from collector.device import CPU, GPU
from collector.machine.environment import PACKAGES, SOURCE_VARIABLE, cpu_name, environment_id
from collector.output_file import write_output
from collector.own_models import described
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Failure, Measurement, Stage, Status, short_hash
from jobs.builds.overlay import Wheel
from jobs.pool.runner import now
from jobs.requested_options import DEFAULT_CACHE

#: Answers to the questions of a cell: by key the answer and its source (`collector.census.gpu_models`).
Answers = Mapping[str, tuple[bool, str]]
#: The nice value of a process that yields to other processes on a shared core: it gets a tenth of the core.
_LAST = 10


@dataclass(frozen=True, slots=True)
class CensusPlace:
    """The device that code is generated for, and the Python files that generate it, as `ExecutionOptions` names them.

    `threads` is the number of threads that torch uses where the code runs: C++ code is written for that number. `workers`
    cells are generated side by side, on `cores`, or on any core if it is empty.
    """

    device_name: str
    overlay: str = ""
    source: str = ""
    cache: Path = DEFAULT_CACHE
    workers: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    threads: int = 1
    cores: Sequence[int] = ()

    @property
    def device(self) -> str:
        """The device of the cells: `cuda` for every GPU, or `cpu`."""
        return CPU if self.device_name == CPU else GPU

    def variables(self) -> dict[str, str]:
        """Return the environment variables of a census process. Raises `CensusError` if the GPU's runtime cannot be built."""
        variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.overlay:
            rest = os.environ.get("PYTHONPATH")
            variables["PYTHONPATH"] = os.pathsep.join([self.overlay, *([rest] if rest else [])])
            variables[SOURCE_VARIABLE] = self.source
        if self.device_name != CPU:
            variables["LD_PRELOAD"] = str(build_runtime(find_gpu(self.device_name), self.cache))
        return variables


class CensusPool:
    """The process of a census at one place, which starts with the first cells; a context manager that ends it.

    Outcomes are cached. `workers` cells are generated side by side; the number may change meanwhile. `imported` are the files of
    torch that were imported so far, as paths that begin with `torch/`.
    """

    def __init__(self, place: CensusPlace, settings: Settings) -> None:
        self.place, self._settings = place, settings
        self.workers = place.workers
        self._process: _Process | None = None
        self._numbers = count()
        self._is_over = self._gives_way = False
        self.imported: set[str] = set()

    def __enter__(self) -> CensusPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def cache(self) -> CensusCache:
        """The cached outcomes of this place and these settings."""
        return CensusCache(self.place, self._settings)

    def take_over(self, settings: Settings, workers: int) -> CensusPool:
        """Set the settings and the workers of a pool whose process started before they were known, and return the pool."""
        self._settings, self.workers = settings, workers
        return self

    def close(self) -> None:
        """End the process, even while cells are generated; no further cell is generated."""
        self._is_over = True
        if self._process:
            self._process.end()

    def start(self) -> None:
        """Start the process, which begins to import. Raises `CensusError` if the GPU's runtime cannot be built."""
        self._process = _Process(self.place)
        if self._gives_way:
            self._process.give_way()

    def give_way(self) -> None:
        """Yield to other processes on shared cores from now on."""
        self._gives_way = True
        if self._process:
            self._process.give_way()

    def stand(self) -> None:
        """Pause the process and its cells until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume the process and its cells after `stand`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process:
            self._process.signal(number)

    def generate(self, cells: Sequence[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        """Yield the outcome of each cell: first the cached ones, then the others as they come. `answers` are by `cell_id`.

        Raises `CensusError` if torch does not allow a census, or if the GPU's runtime cannot be built.
        """
        found = self.cache.find(cells, answers)
        yield from found
        there = {outcome.measurement.cell for outcome in found}
        for outcome in self._generate([cell for cell in cells if cell not in there], answers):
            self.cache.keep(outcome, answers.get(outcome.measurement.cell.cell_id, {}), self.imported)
            yield outcome

    def _generate(self, cells: Sequence[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        waiting = deque(cells)
        under_way: dict[int, tuple[Cell, str]] = {}
        while (waiting or under_way) and not self._is_over:
            if self._process is None:
                self.start()
            process = self._process
            assert process is not None  # noqa: S101 - started before
            process.await_ready()
            while waiting and len(under_way) < max(1, self.workers):
                number, cell = next(self._numbers), waiting.popleft()
                under_way[number] = cell, now()
                process.ask(number, cell, self._settings, answers.get(cell.cell_id, {}))
            message = process.receive()
            self.imported |= process.files
            if message and message.get("number") not in under_way:
                continue  # a cell of an earlier call, whose caller no longer waits
            if not message and not self._is_over:  # the process ended, and with it all cells under way
                how, self._process = process.ended(), None
                process.end()
                died = [_died(cell, began, how, self._settings.timeout_s) for cell, began in under_way.values()]
                under_way.clear()
                yield from died
            elif message:
                cell, began = under_way.pop(message["number"])
                yield self._outcome(cell, began, message)

    def _outcome(self, cell: Cell, began: str, message: Mapping[str, Any]) -> Outcome:
        if "outcome" in message:
            outcome = Outcome.from_json(message["outcome"])
        else:
            outcome = _died(cell, began, message["died"], self._settings.timeout_s)
        if outcome.measurement.status not in (Status.NOT_CHECKED, Status.UNAVAILABLE):
            outcome.measurement.log_tail = message["log"] or None
        return outcome


class _Process:
    """The process of a census at a place; it and the processes of its cells form a process group."""

    def __init__(self, place: CensusPlace) -> None:
        self.files: set[str] = set()
        self._is_ready = False
        reader, writer = os.pipe()
        theirs, ours = os.pipe()
        words = ["--report", str(writer), "--device-name", place.device_name, "--threads", str(place.threads)]
        # The child appends through a file description of its own, so reading here does not move its position.
        self._log = tempfile.NamedTemporaryFile(prefix="inductor-watch-census-", suffix=".log")  # noqa: SIM115
        try:
            with open(self._log.name, "ab") as log:  # noqa: PTH123
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "collector.census.census_process", *words],
                    stdin=theirs,
                    stdout=log,
                    stderr=log,
                    env=place.variables(),
                    pass_fds=[writer],
                    process_group=0,
                )
        finally:
            os.close(writer)
            os.close(theirs)
        if place.cores:  # before it imports torch, which sizes its pools by them
            with suppress(OSError):
                os.sched_setaffinity(self._process.pid, place.cores)
        self._requests = os.fdopen(ours, "w", encoding="utf-8")
        self._report = os.fdopen(reader, encoding="utf-8")

    def await_ready(self) -> None:
        """Wait until cells may be asked for. Raises `CensusError` if the process does not start."""
        if self._is_ready:
            return
        message = self.receive()
        if "ready" not in message:
            raise CensusError(message.get("refused") or f"the census does not start: {self._last_line()}")
        self._is_ready = True

    def ask(self, number: int, cell: Cell, settings: Settings, answers: Answers) -> None:
        """Request the code of a cell; `receive` returns its outcome later."""
        request = {"cell": cell.to_json(), "settings": settings.to_json(), "answers": dict(answers)}
        with suppress(BrokenPipeError):  # it has ended: `receive` says so
            self._requests.write(json.dumps({"number": number, **request}) + "\n")
            self._requests.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next message of the process; empty if the process has ended."""
        for line in self._report:
            try:
                message = json.loads(line)
            except ValueError:  # it died in the middle of its line
                continue
            self.files = self.files.union(message.get("files", ()))
            return dict(message)
        return {}

    def signal(self, number: int) -> None:
        """Send a signal to the process and its cells."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def give_way(self) -> None:
        """Yield to other processes from now on."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self._process.pid, _LAST)

    def ended(self) -> str:
        """Wait for the process and return how it ended: a signal's name or the exit code."""
        code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def end(self) -> None:
        """End the process and its cells."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._requests, self._report, self._log):
            with suppress(OSError):  # a buffered request that the ended process no longer reads
                stream.close()

    def _last_line(self) -> str:
        lines = Path(self._log.name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


def _died(cell: Cell, began: str, how: str, timeout_s: float) -> Outcome:
    is_slow = how == "timeout"
    message = f"not generated within {timeout_s:g} s" if is_slow else f"the process of the cell ended with {how}"
    status = Status.TIMEOUT if is_slow else Status.CRASHED
    failure = Failure(Stage.COMPILE, "Timeout" if is_slow else "Crash", message)
    return Outcome(Measurement(cell, status, began, timeout_s if is_slow else 0.0, failure=failure))


#: The statuses of outcomes that are cached: they depend on the cache key alone. A cell that died may succeed next time.
_KEPT = (Status.NOT_CHECKED, Status.UNAVAILABLE, Status.FAIL_TO_COMPILE, Status.FAIL_TO_RUN)


class CensusCache:
    """The cached outcomes of one place. `is_used` is False if nothing can be cached because torch is a working tree."""

    def __init__(self, place: CensusPlace, settings: Settings) -> None:
        self._wheel, self._place = Wheel.installed(), place
        self.is_used = not (self._wheel.folder / ".git").exists()
        libraries = {name: _version(name) for name in PACKAGES}
        host = [cpu_name(), place.threads]
        own = {"flags": str(settings.flags), "optimizer": settings.optimizer}
        base = [place.device_name, host, str(self._wheel), libraries, own, collector_digest()]
        self._settings, self._models = settings, dict[tuple[str, str], dict[str, Any]]()
        self._folder = place.cache.expanduser() / "generated" / short_hash(base)
        self._imported: set[str] | None = None
        self._digest = ""

    def find(self, cells: Iterable[Cell], answers: Mapping[str, Answers]) -> list[Outcome]:
        """Return the cached outcomes of the cells that were generated from the same files before; `answers` are by `cell_id`."""
        return [found for cell in cells if (found := self._find(cell, answers.get(cell.cell_id, {})))]

    def _find(self, cell: Cell, answers: Answers) -> Outcome | None:
        if not self.is_used or not self._sources():
            return None
        with suppress(OSError, ValueError, KeyError, TypeError):
            packed = self._path(cell, answers).read_bytes()
            outcome = Outcome.from_json(json.loads(gzip.decompress(packed)))
            self._rename_source(outcome)
            outcome.measurement.details[CENSUS]["cached"] = True
            return outcome
        return None

    def keep(self, outcome: Outcome, answers: Answers, imported: Iterable[str]) -> None:
        """Cache an outcome; `imported` are all files of torch that were imported for any cell so far."""
        if not self.is_used or outcome.measurement.status not in _KEPT:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._add_imported(set(imported))
        packed = gzip.compress(json.dumps(outcome.to_json()).encode(), 6)
        write_output(self._path(outcome.measurement.cell, answers), packed)

    def _add_imported(self, imported: set[str]) -> None:
        """Add files to the stored list of imported files, under a lock: the census of another commit may add files meanwhile."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept, self._imported = self._imported, None
            known = self._read_imported() or set()
            self._imported = known | imported
            if imported - known:
                write_output(self._folder / "imported", "\n".join(sorted(self._imported)))
        if self._imported != kept:
            self._digest = ""

    def _path(self, cell: Cell, answers: Answers) -> Path:
        given = {key: answer for key, (answer, _) in answers.items()}
        name = short_hash([self._sources(), cell.to_json(), self._model(cell), given], 20)
        return self._folder / f"{name}.json.gz"

    def _model(self, cell: Cell) -> dict[str, Any]:
        """Return the description of a user's own model; empty for a model of the zoo, which this program defines."""
        key = cell.suite, cell.model
        if key not in self._models:
            self._models[key] = described(*key, self._settings.own_models)
        return self._models[key]

    def _sources(self) -> str:
        """Return a digest of the imported files as this place has them; empty if no imported file is known yet."""
        if not self._digest and (imported := self._read_imported()):
            own = {name: meaning for name in sorted(imported) if (meaning := self._own_meaning(name))}
            self._digest = short_hash(own, 20)
        return self._digest

    def _own_meaning(self, name: str) -> str:
        """Return the `_meaning` of a file in the overlay; empty if the wheel's file has an equal one."""
        if not self._place.overlay:
            return ""
        own, of_wheel = Path(self._place.overlay, name), self._wheel.folder / name
        if os.path.realpath(own) == os.path.realpath(of_wheel):
            return ""
        meaning = _meaning(own)
        return "" if meaning == _meaning(of_wheel) else meaning

    def _read_imported(self) -> set[str] | None:
        if self._imported is None:
            with suppress(OSError):
                self._imported = set((self._folder / "imported").read_text().split("\n"))
        return self._imported

    def _rename_source(self, outcome: Outcome) -> None:
        """Set this place's source in a cached outcome, which another source with the same files may have generated."""
        data = {key: value for key, value in outcome.environment.items() if key != NAME_OF_SOURCE}
        outcome.environment = data | ({NAME_OF_SOURCE: self._place.source} if self._place.source else {})
        outcome.measurement.environment_id = environment_id(outcome.environment)


def _meaning(path: Path) -> str:
    """Return a digest of a file. Python sources that differ only in comments and layout have the same digest."""
    try:
        content = path.read_bytes()
    except OSError:
        return "missing"
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError):
            content = ast.dump(ast.parse(content)).encode()
    return hashlib.sha256(content).hexdigest()


@cache
def collector_digest() -> str:
    """Return a digest of this program's collector, whose models and census affect the code, too."""
    folder = Path(str(collector.__file__)).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".c"))
    return short_hash({str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
