"""The process of a census: it imports torch and sees a GPU that is not there, then generates each cell in a forked child.

As many cells are generated side by side as are asked for: what they need is imported once for all of them.

    request (standard input, a line a cell)  {"number": 3, "cell": {...}, "settings": {...}, "answers": {...}}
    report (descriptor --report, a line)     {"ready": {environment}, "files": [...]}, then for each cell, in the order in
                                             which they end, {"number": 3, "log": "...", "outcome": {...}, "files": [...]}
                                             or {"number": 3, "log": "...", "died": "SIGSEGV"}

`files` are those of torch's package that were imported, and for a cell those that it imported besides.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from collector.masking import ending
from collector.process.forkserver import die_with

#: Set before torch is imported: nothing is taken from a cache, and nothing is compiled in other processes.
_VARIABLES = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCH_WARM_POOL": "0",
    "OPENBLAS_NUM_THREADS": "1",
}
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
#: Bytes of the end of a cell's log that are reported.
LOG_TAIL = 4_000
_READ_BYTES = 1 << 16


class CensusProcess:
    """Prepares this process for a device and serves requests until standard input ends."""

    def __init__(self, report: IO[str], device_name: str, threads: int) -> None:
        self._report = report
        self._reported: set[str] = set()
        self._children: list[_Child] = []
        self._environment = self._prepare(device_name, threads)
        self._send({"ready": self._environment, "files": self._files()})

    def _files(self) -> list[str]:
        """Return the files of torch's package that were imported since the last call, by their paths beside it."""
        import torch

        root = Path(torch.__file__).parents[1]
        names = (str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values()))
        files = {name.removeprefix(f"{root}/") for name in names if name.startswith(f"{root}/torch/")}
        # Templates of kernels are read and not imported.
        files |= {str(path.relative_to(root)) for path in (root / "torch" / "_inductor" / "kernel").rglob("*.jinja")}
        new, self._reported = files - self._reported, self._reported | files
        return sorted(new)

    def _prepare(self, device_name: str, threads: int) -> dict[str, Any]:
        """Make torch see the device; returns the environment of the cells."""
        import torch

        from collector.census.absent_gpu import pretend, stop_at_the_code
        from collector.census.gpu_models import find_gpu
        from collector.device import CPU, GPU
        from collector.machine.environment import fingerprint
        from collector.machine.toolchain import know_instruction_sets
        from collector.process.forkserver import preload_compiler

        torch.set_num_threads(threads)  # C++ for a CPU is written for so many
        environment = fingerprint("cpu") | {"census": device_name}
        if device_name != CPU:
            gpu = find_gpu(device_name)
            pretend(gpu)
            capability = ".".join(map(str, gpu.capability))
            environment |= {"device": GPU, "gpu": gpu.name, "capability": capability, "cuda": torch.version.cuda}
        stop_at_the_code()
        from collector.census.generating import leave_out_values  # what it imports asks torch for the GPU

        leave_out_values()
        preload_compiler(environment["device"])
        if device_name == CPU:  # a graph for a GPU rarely has C++, and asks itself then
            know_instruction_sets(os.sched_getaffinity(0))
        self._warm_up(CPU if device_name == CPU else GPU)
        gc.collect()
        gc.freeze()
        return environment

    def _warm_up(self, device: str) -> None:
        """Generate a small graph once: the compiler's patterns are then made for all cells."""
        import torch

        from collector.census.generating import fake_mode

        with tempfile.TemporaryDirectory() as folder:
            os.environ[_CACHE] = folder
            with fake_mode(), torch.no_grad():
                layer = torch.nn.Linear(8, 8, device=device)
                torch.compile(lambda x: layer(x).relu())(torch.empty(4, 8, device=device))
            torch._dynamo.reset()

    def serve(self, requests: int) -> None:
        """Answer each request of a descriptor in a forked child: a cell that fails, or hangs, takes nothing else with it.

        Cells that have ended are reported before the next one begins, since that may have to import a library first.
        """
        asked, waiting = b"", deque[bytes]()
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(0 if waiting else self._patience_s()):
                    if key.data is not None:
                        selector.unregister(key.fd)
                        self._report_end(key.data, key.fd)
                    elif more := os.read(requests, _READ_BYTES):
                        *lines, asked = (asked + more).split(b"\n")
                        waiting.extend(lines)
                    else:
                        return
                if waiting:
                    child = self._start(json.loads(waiting.popleft()))
                    selector.register(child.descriptor, selectors.EVENT_READ, child)
                self._kill_late()

    def _start(self, request: dict[str, Any]) -> _Child:
        """Generate a cell in a child of this process."""
        self._import_for(request["cell"])
        parent, folder = os.getpid(), Path(tempfile.mkdtemp(prefix="inductor-watch-census-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads forks
            pid = os.fork()
        if not pid:
            die_with(parent)
            self._generate(request, folder)
        timeout_s = float(request["settings"]["timeout_s"])
        child = _Child(request["number"], pid, os.pidfd_open(pid), folder, time.monotonic() + timeout_s)
        self._children.append(child)
        return child

    def _patience_s(self) -> float | None:
        """Return the seconds until a child has taken too long."""
        now = time.monotonic()
        return min((max(0.0, child.until - now) for child in self._children if not child.is_late), default=None)

    def _kill_late(self) -> None:
        for child in self._children:
            if time.monotonic() > child.until and not child.is_late:
                child.is_late = True
                os.kill(child.pid, signal.SIGKILL)

    def _report_end(self, child: _Child, descriptor: int) -> None:
        """Report the outcome of a child that has ended, or how it died."""
        _, status = os.waitpid(child.pid, 0)
        os.close(descriptor)
        self._children.remove(child)
        code = os.waitstatus_to_exitcode(status)
        log = ending(child.log.read_bytes(), LOG_TAIL) if child.log.exists() else ""
        if child.is_late:
            found = {"died": "timeout"}
        elif code:
            found = {"died": signal.Signals(-code).name if code < 0 else f"exit code {code}"}
        else:
            found = json.loads(child.outcome.read_text())
        self._send({"number": child.number, "log": log, **found})
        shutil.rmtree(child.folder, ignore_errors=True)

    def _import_for(self, cell: dict[str, Any]) -> None:
        """Import what builds the cell's model, so that the next cell need not."""
        from collector.zoo.registry import find
        from collector.zoo.spec import forbid_hubs

        forbid_hubs()
        with suppress(Exception):  # what fails here fails in the child too, where it becomes the cell's status
            spec = find(cell["suite"], cell["model"])
            import_module(spec.builder.partition(":")[0])
            if "architecture" in spec.params:
                getattr(import_module("transformers"), str(spec.params["architecture"]))

    def _generate(self, request: dict[str, Any], folder: Path) -> None:
        """Generate a cell in this process, and end it."""
        code = 1
        try:
            child = _Child(request["number"], os.getpid(), -1, folder)
            child.take_output()
            from collector.census.generating import generate
            from collector.settings import Settings
            from collector.vocabulary import Cell

            os.environ[_CACHE] = str(folder)
            answers = {name: (bool(answer), str(source)) for name, (answer, source) in request["answers"].items()}
            settings = Settings.from_json(request["settings"])
            outcome = generate(Cell.from_json(request["cell"]), settings, self._environment, answers)
            child.outcome.write_text(json.dumps({"outcome": outcome.to_json(), "files": self._files()}))
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _send(self, message: dict[str, Any]) -> None:
        self._report.write(json.dumps(message, separators=(",", ":")) + "\n")
        self._report.flush()


@dataclass(eq=False, slots=True)
class _Child:
    """A cell that is being generated in process `pid`, until a moment of `time.monotonic`, in a folder of its own."""

    number: int
    pid: int
    descriptor: int
    folder: Path
    until: float = math.inf
    is_late: bool = False

    @property
    def log(self) -> Path:
        """What the cell prints."""
        return self.folder / "census.log"

    @property
    def outcome(self) -> Path:
        """What the cell has come to."""
        return self.folder / "census.json"

    def take_output(self) -> None:
        """Have what this process prints go to the log; requests are not its own."""
        for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, str(self.log), os.O_WRONLY | os.O_CREAT)):
            opened = os.open(path, flags | os.O_APPEND, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.dup2(1, 2)


def main() -> None:
    """Entry point of `python -m collector.census.census_process --report FD --device-name NAME --threads N`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=int, required=True, metavar="FD")
    parser.add_argument("--device-name", required=True)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    os.environ.update(_VARIABLES)
    die_with(os.getppid())
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    with os.fdopen(words.report, "w", encoding="utf-8") as report:
        from collector.usage_errors import ExpectedError

        try:
            CensusProcess(report, words.device_name, words.threads).serve(sys.stdin.fileno())
        except ExpectedError as error:
            report.write(json.dumps({"refused": str(error)}) + "\n")
            report.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
