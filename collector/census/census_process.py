"""The process of a census: it imports torch and sees a GPU that is not there, then generates cell after cell in forked children.

    request (standard input, a line a cell)  {"cell": {...}, "settings": {...}, "answers": {...}}
    report (descriptor --report, a line)     {"ready": {environment}, "files": [...]}, then a cell
                                             {"outcome": {...}, "files": [...]} or {"died": "SIGSEGV"}

`files` are those of torch's package that were imported, and for a cell those that it imported besides.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

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


class CensusProcess:
    """Prepares this process for a device and serves requests until standard input ends."""

    def __init__(self, report: IO[str], device_name: str, threads: int) -> None:
        self._report = report
        self._reported: set[str] = set()
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
        preload_compiler(environment["device"], os.sched_getaffinity(0))
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

    def serve(self, requests: IO[str]) -> None:
        """Answer each request in a forked child: a cell that fails, or hangs, takes nothing else with it."""
        parent = os.getpid()
        for line in requests:
            request = json.loads(line)
            self._import_for(request["cell"])
            sys.stdout.flush()
            sys.stderr.flush()
            folder = tempfile.mkdtemp(prefix="inductor-watch-census-")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads forks
                child = os.fork()
            if not child:
                die_with(parent)
                self._generate(request, folder)
            self._await(child, float(request["settings"]["timeout_s"]))
            shutil.rmtree(folder, ignore_errors=True)

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

    def _generate(self, request: dict[str, Any], folder: str) -> None:
        """Generate a cell and end the process."""
        from collector.census.generating import generate
        from collector.settings import Settings
        from collector.vocabulary import Cell

        code = 1
        try:
            os.environ[_CACHE] = folder
            answers = {name: (bool(answer), str(source)) for name, (answer, source) in request["answers"].items()}
            settings = Settings.from_json(request["settings"])
            outcome = generate(Cell.from_json(request["cell"]), settings, self._environment, answers)
            self._send({"outcome": outcome.to_json(), "files": self._files()})
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _await(self, child: int, seconds: float) -> None:
        """Wait for a child, and report one that died or took too long."""
        deadline = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                self._send({"died": "timeout"}, after_cut=True)
                return
            time.sleep(0.02)
        if status:
            code = os.waitstatus_to_exitcode(status)
            self._send({"died": signal.Signals(-code).name if code < 0 else f"exit code {code}"}, after_cut=True)

    def _send(self, message: dict[str, Any], after_cut: bool = False) -> None:
        self._report.write(("\n" if after_cut else "") + json.dumps(message, separators=(",", ":")) + "\n")
        self._report.flush()


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
            CensusProcess(report, words.device_name, words.threads).serve(sys.stdin)
        except ExpectedError as error:
            report.write(json.dumps({"refused": str(error)}) + "\n")
            report.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
