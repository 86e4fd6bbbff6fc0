"""The fork server: the process that starts the measuring processes of a run, by a fork after imports, or fresh ones.

Importing torch and the model libraries takes longer than compiling a small model. A server that has imported them once, and
has never touched a GPU, forks a child per cell in milliseconds. It imports the compiler's modules too, so that a cold compile
time contains almost no imports.

When the process that started the server is gone, the server kills every process of every cell and ends. It listens on a Unix
socket that keeps message boundaries. Every message is a JSON object:

    request   {"preload": {"libraries": [NAME, ...], "classes": [MODULE:NAME, ...], "has_cpp": BOOL}}
              {"start": TOKEN, "environ": {...}, "cores": [...]} with three descriptors: standard input, output, report
              {"reap": PID}
    answer    {"ready": true}, {"started": TOKEN, "pid": PID}, {"ended": PID, "code": CODE}
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

from collector.device import DEVICES, device_named
from collector.machine.host import pin_to_cores
from collector.machine.toolchain import SKIP_VARIABLE, know_instruction_sets, trust_cpu
from collector.process.orphans import LENGTH, VARIABLE, become_subreaper, children, kill_orphans, kill_tokens
from collector.zoo.spec import forbid_hubs

#: The largest message; a request carries a whole environment.
MESSAGE_BYTES = 1 << 20
#: The prctl option for a signal when the parent dies (linux/prctl.h).
_PR_SET_PDEATHSIG = 1
_WORKER = (
    "collector.process.worker",
    "collector.measure.cell",
    "collector.measure.autotuning",
    "collector.zoo.registry",
)
#: A regular expression for Python's warning when a process with threads forks.
_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of fork\(\) may lead to deadlocks"
#: Modules that import almost all modules of a compilation; `.*` stands for the modules of a package.
_COMPILER = """
    torch._inductor.compile_fx torch._dynamo.backends.inductor torch._dynamo.repro.after_dynamo torch._export.db.logging
    torch._functorch.aot_autograd torch._inductor.choices torch._inductor.codegen.cpp torch._inductor.codegen.triton
    torch._inductor.codegen.cpp_wrapper_gpu torch._inductor.codegen.cuda_combined_scheduling torch._inductor.codegen.halide
    torch._inductor.codegen.memory_planning torch._inductor.codegen.mps torch._inductor.codegen.pallas
    torch._inductor.codegen.wrapper_fxir torch._inductor.cudagraph_trees torch._inductor.fx_passes.fuse_attention
    torch._inductor.fx_passes.mkldnn_fusion torch._inductor.fx_passes.pad_mm torch._inductor.fx_passes.quantization
    torch._functorch._aot_autograd.subclass_codegen torch._inductor.fx_passes.serialized_patterns.*
    torch._inductor.kernel.conv torch._inductor.kernel.mm torch._inductor.runtime.autotune_cache torch._inductor.runtime.caching
    torch._inductor.runtime.triton_heuristics torch.distributed.tensor.experimental._func_map torch.export._trace
    torch.utils.cpp_extension sympy.physics.units
"""


class ForkServer:
    """The server that starts processes on request and reports their ends.

    `beside` runs beside the imports of cells that may have C++ code, and the server is ready when it has ended. For other cells
    it begins after the imports, which it would make slower, and the cells are forked meanwhile: nothing that they need is locked
    by a thread that waits for compilers.
    """

    def __init__(self, channel: socket.socket, preloaded: bool, beside: Thread | None) -> None:
        self._channel, self._preloaded, self._beside = channel, preloaded, beside
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, None)
        self._tokens: dict[int, str] = {}
        #: Processes that an import has started and that belong to no cell.
        self._helpers: set[int] = set()

    def serve(self) -> None:
        """Answer requests until the channel is closed, then kill all processes that this server started."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._tell_end(key.data, key.fd)
                elif not self._answer():
                    self._kill_all()
                    return

    def _answer(self) -> bool:
        try:
            text, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, 3)
        except ConnectionError:
            return False
        if not text:
            return False
        request = json.loads(text)
        if "reap" in request:
            self._reap(int(request["reap"]))
        elif "preload" in request:
            before = {*self._tokens, *children()}
            with quiet():
                self._preload(**request["preload"])
            self._helpers.update(pid for pid in children() if pid not in before)
            if self._preloaded:
                gc.collect()
                gc.freeze()  # else each full collection in a child copies 100 MB, which takes 0.3 s
                gc.enable()
            self._send({"ready": True})
        else:
            pid = self._start(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self._tokens[pid] = str(request["start"])
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            self._send({"started": request["start"], "pid": pid})
        return True

    def _preload(self, libraries: Sequence[str], classes: Sequence[str], has_cpp: bool) -> None:
        if has_cpp:
            self._begin_beside()
        preload(libraries, classes)
        self._begin_beside()
        if has_cpp:
            self._await_beside()

    def _begin_beside(self) -> None:
        if self._beside and not self._beside.ident:
            self._beside.start()

    def _await_beside(self) -> None:
        if self._beside and self._beside.ident:
            self._beside.join()

    def _start(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        reading, writing = os.pipe()
        server = os.getpid()
        pid = os.fork()
        if pid:
            os.close(writing)
            # Wait until the child has its own group and token, since the caller may stop or kill it at once.
            os.read(reading, 1)
            os.close(reading)
            return pid
        try:
            os.setsid()
            become_subreaper()
            die_with(server)
            self._become_cell(request, descriptors, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)  # a failing child must not continue as a second server

    def _become_cell(self, request: Mapping[str, Any], descriptors: Sequence[int], starting: int) -> NoReturn:
        self._selector.close()
        self._channel.close()
        answers, output, report = descriptors
        for source, target in ((answers, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.set_inheritable(report, True)
        if request["cores"]:
            os.sched_setaffinity(0, request["cores"])
        command = [sys.executable, "-m", "collector.process.worker", "--report", str(report)]
        if not self._preloaded:
            os.execve(command[0], command, request["environ"])  # noqa: S606 - this closes `starting`
        found = {name: value for name, value in os.environ.items() if name == SKIP_VARIABLE}
        take_environment({**request["environ"], **found}, str(request["start"]))
        os.close(starting)
        from collector.process.worker import work

        work(report)

    def _tell_end(self, pid: int, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if pid not in self._tokens:  # `reap` was requested while it still ran: nobody needs its code
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            self._kill_orphans("")
            return
        # It is not reaped yet, so that its number is not reused and its group can be killed.
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if found is not None:
            code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            self._kill_orphans(self._tokens[pid])  # before the end is reported and the next cell begins
            self._send({"ended": pid, "code": code})

    def _reap(self, pid: int) -> None:
        if self._tokens.pop(pid, None) is not None:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _send(self, message: Mapping[str, Any]) -> None:
        with suppress(ConnectionError):
            self._channel.send(json.dumps(message).encode())

    def _kill_orphans(self, token: str) -> None:
        """Kill what cells that are over have left behind, but beside compilers of this server only what has this token.

        The compilers are its children as well, and to wait for them would keep all cells waiting. Orphans that have removed
        their token are killed when a later cell ends.
        """
        if self._beside and self._beside.is_alive():
            kill_tokens(filter(None, [token]))
            return
        if self._helpers:  # numbers of those that have ended may be used again
            self._helpers.intersection_update(children())
        kill_orphans({*self._tokens, *self._helpers})

    def _kill_all(self) -> None:
        for pid in self._tokens:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        kill_orphans(())
        kill_tokens(self._tokens.values())


def die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies, even if this process is stopped."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before this call
        os._exit(70)


def take_environment(environ: Mapping[str, str], token: str) -> None:
    """Replace this process's environment by `environ`, and make the token visible in /proc.

    /proc shows the environment with which a program started, so the token is written over the server's placeholder there.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    place = libc.getenv(VARIABLE.encode())
    if place and len(token) == LENGTH:
        ctypes.memmove(place, token.encode(), LENGTH)
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
    tempfile.tempdir = None  # cached under the server's environment


@contextmanager
def quiet() -> Iterator[None]:
    """Discard standard error in this context, C++ included: messages of imports would disturb the output of the run.

    A library that does not import fails again in the cells that need it, whose logs then show the error.
    """
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def preload_compiler(device: str) -> None:
    """Import torch, the worker and the compiler's modules for this device; modules that this torch lacks are skipped."""
    forbid_hubs()
    compiler = _COMPILER.split() if device in DEVICES else []
    preload(_WORKER, compiler)
    if compiler:
        with suppress(Exception):  # torch may not import; cells then show the error
            preload(device_named(device).preloads, ())
        trust_cpu()


def preload(libraries: Iterable[str], classes: Iterable[str]) -> None:
    """Import libraries by name, `package.*` with its modules, and classes as `module:name` if a library loads them lazily."""
    for spelled in (*libraries, *classes):
        module, _, name = spelled.removesuffix(".*").partition(":")
        # A module that does not import fails again in the cells that need it.
        with suppress(Exception):
            imported = importlib.import_module(module)
            getattr(imported, name or "__name__")
            if spelled.endswith(".*"):
                preload((f"{module}.{each.name}" for each in pkgutil.iter_modules(imported.__path__)), ())


def main() -> None:
    """Run as `python -m collector.process.forkserver --channel FD [--device D]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--device", help="import torch and what a compilation for this device needs")
    options = parser.parse_args()
    # Python warns when a process with several threads forks. This process runs no cell's code, so no lock is held in a fork.
    warnings.filterwarnings("ignore", _FORK_WARNING, DeprecationWarning, __name__)
    cores = os.sched_getaffinity(0)
    pin_to_cores()
    become_subreaper()
    # Not beside the imports of the compiler, of which it would see a part.
    has_probes = options.device in DEVICES
    beside = Thread(target=know_instruction_sets, args=(cores,), daemon=True) if has_probes else None
    if options.device:
        gc.disable()  # until everything is imported: collections take one of five seconds, and imports make little garbage
        with quiet():
            preload_compiler(options.device)
    ForkServer(socket.socket(fileno=options.channel), bool(options.device), beside).serve()


if __name__ == "__main__":
    main()
