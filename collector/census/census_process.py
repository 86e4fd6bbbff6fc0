"""The process of a census: it imports torch, imitates an absent GPU, and generates each cell's code in a forked child.

All requested cells are generated at the same time; the modules that they need are imported once for all.

    request (standard input, a line a cell)  {"number": 3, "cell": {...}, "settings": {...}, "answers": {...}}
    report (descriptor --report, a line)     {"ready": {environment}, "files": [...]}, then for each cell, in the order in
                                             which they end, {"number": 3, "log": "...", "outcome": {...}, "files": [...]}
                                             or {"number": 3, "log": "...", "died": "SIGSEGV"}

`files` are the imported files of torch's package; for a cell, the files that were imported after the last report.
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

#: Variables that are set before torch is imported: no caches are used, and no other processes compile.
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
    """The server of a census: it prepares this process for a device and serves requests until standard input ends."""

    def __init__(self, report: IO[str], device_name: str, threads: int) -> None:
        self._report = report
        self._reported: set[str] = set()
        self._children: list[_Child] = []
        self._environment = self._prepare(device_name, threads)
        self._send({"ready": self._environment, "files": self._files()})

    def _files(self) -> list[str]:
        """Return the files of torch's package that were imported since the last call, as paths such as `torch/fx/graph.py`."""
        import torch

        root = Path(torch.__file__).parents[1]
        names = (str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values()))
        files = {name.removeprefix(f"{root}/") for name in names if name.startswith(f"{root}/torch/")}
        # Templates of kernels are read, not imported.
        files |= {str(path.relative_to(root)) for path in (root / "torch" / "_inductor" / "kernel").rglob("*.jinja")}
        new, self._reported = files - self._reported, self._reported | files
        return sorted(new)

    def _prepare(self, device_name: str, threads: int) -> dict[str, Any]:
        """Make torch see the device, and return the environment of the cells."""
        import torch

        from collector.census.absent_gpu import pretend, stop_at_the_code
        from collector.census.gpu_models import find_gpu
        from collector.device import CPU, GPU
        from collector.machine.environment import fingerprint
        from collector.machine.toolchain import know_instruction_sets
        from collector.process.forkserver import preload_compiler

        torch.set_num_threads(threads)  # generated C++ depends on the number of threads
        environment = fingerprint("cpu") | {"census": device_name}
        if device_name != CPU:
            gpu = find_gpu(device_name)
            pretend(gpu)
            capability = ".".join(map(str, gpu.capability))
            environment |= {"device": GPU, "gpu": gpu.name, "capability": capability, "cuda": torch.version.cuda}
        stop_at_the_code()
        from collector.census.generating import leave_out_values  # not at the top: its imports ask torch for the GPU

        leave_out_values()
        preload_compiler(environment["device"])
        if device_name == CPU:  # a graph for a GPU rarely has C++, and finds the instruction sets itself then
            know_instruction_sets(os.sched_getaffinity(0))
        self._warm_up(CPU if device_name == CPU else GPU)
        gc.collect()
        gc.freeze()
        return environment

    def _warm_up(self, device: str) -> None:
        """Generate a small graph once, so that the compiler's patterns exist for all cells."""
        import torch

        from collector.census.generating import fake_mode

        with tempfile.TemporaryDirectory() as folder:
            os.environ[_CACHE] = folder
            with fake_mode(), torch.no_grad():
                layer = torch.nn.Linear(8, 8, device=device)
                torch.compile(lambda x: layer(x).relu())(torch.empty(4, 8, device=device))
            torch._dynamo.reset()

    def serve(self, requests: int) -> None:
        """Answer each request that is read from a descriptor in a forked child, so that a failing or hanging cell stops no other.

        Cells that have ended are reported before the next one begins, since beginning a cell may first import a library.
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
        """Start a child of this process that generates a cell."""
        self._import_for(request["cell"])
        parent, folder = os.getpid(), Path(tempfile.mkdtemp(prefix="inductor-watch-census-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forking a process with threads
            pid = os.fork()
        if not pid:
            die_with(parent)
            self._generate(request, folder)
        timeout_s = float(request["settings"]["timeout_s"])
        child = _Child(request["number"], pid, os.pidfd_open(pid), folder, time.monotonic() + timeout_s)
        self._children.append(child)
        return child

    def _patience_s(self) -> float | None:
        """Return the seconds until the next child runs out of time; None without children in time."""
        now = time.monotonic()
        return min((max(0.0, child.until - now) for child in self._children if not child.is_late), default=None)

    def _kill_late(self) -> None:
        for child in self._children:
            if time.monotonic() > child.until and not child.is_late:
                child.is_late = True
                os.kill(child.pid, signal.SIGKILL)

    def _report_end(self, child: _Child, descriptor: int) -> None:
        """Report the outcome of a child that has ended, or the signal or exit code with which it died."""
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
        """Import the modules that build the cell's model, so that later cells find them imported."""
        from collector.zoo.registry import find
        from collector.zoo.spec import forbid_hubs

        forbid_hubs()
        with suppress(Exception):  # an import that fails here fails in the child too, as the cell's status
            spec = find(cell["suite"], cell["model"])
            import_module(spec.builder.partition(":")[0])
            if "architecture" in spec.params:
                getattr(import_module("transformers"), str(spec.params["architecture"]))

    def _generate(self, request: dict[str, Any], folder: Path) -> None:
        """Generate a cell in this process, and end the process."""
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
    """A cell that process `pid` generates in a folder of its own, at most until `until` (of `time.monotonic`)."""

    number: int
    pid: int
    descriptor: int
    folder: Path
    until: float = math.inf
    is_late: bool = False

    @property
    def log(self) -> Path:
        """The file with the cell's printed output."""
        return self.folder / "census.log"

    @property
    def outcome(self) -> Path:
        """The file with the cell's outcome and the files that it imported."""
        return self.folder / "census.json"

    def take_output(self) -> None:
        """Redirect standard output and error of this process to the log, and standard input to no input."""
        for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, str(self.log), os.O_WRONLY | os.O_CREAT)):
            opened = os.open(path, flags | os.O_APPEND, 0o600)
            os.dup2(opened, descriptor)
            os.close(opened)
        os.dup2(1, 2)


def main() -> None:
    """Run as `python -m collector.census.census_process --report FD --device-name NAME --threads N`."""
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
