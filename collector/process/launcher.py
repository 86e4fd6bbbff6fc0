"""The parent's side of the fork server: it starts the server, requests processes, and receives their exit codes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.machine.host import spell_cores
from collector.process.forkserver import MESSAGE_BYTES
from collector.process.orphans import PLACEHOLDER, VARIABLE
from collector.usage_errors import ExpectedError

#: Variables that a process needs so that cells can be forked from it.
FORKABLE = {
    # Else torch initialises the GPU when it checks that there is one; forked children could not use the GPU then.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # OpenBLAS starts a thread per core when NumPy is imported; a process with one thread forks safely.
    "OPENBLAS_NUM_THREADS": "1",
    # Inductor's compile workers are forked from the cell: a new interpreter that imports torch again costs a small model a
    # quarter of its CPU time.
    "TORCHINDUCTOR_WORKER_START": "fork",
}

#: Variables of the server itself: a placeholder for the token, unbuffered output, so that a crashing child loses none, and no
#: pool of compile workers, which torch up to 2.7 creates on import and all cells would share.
_SERVER = {VARIABLE: PLACEHOLDER, "PYTHONUNBUFFERED": "1", "TORCH_WARM_POOL": "0"}


class LauncherError(ExpectedError):
    """A fork server that has ended or does not answer."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Preload:
    """The modules and classes that the server imports before the first cell, for a device. Classes are `module:name`.

    If cells may have C++ code (`has_cpp`), the server knows the CPU's instruction sets before the first one.
    """

    device: str
    libraries: Sequence[str] = ()
    classes: Sequence[str] = ()
    has_cpp: bool = True


class Launcher:
    """A launcher of cells' processes: forked from a server that has imported `preload`, or fresh ones without `preload`.

    `environ` is the server's environment. `cores` are the cores on which the server imports, as many as a worker has, since torch
    sizes its thread pools by them. The server begins to import at once; `import_also` adds more imports. While it `is_kept`,
    `close` leaves it to the next run.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        preload: Preload | None = None,
        cores: Sequence[int] = (),
        timeout_s: float = 300,
    ) -> None:
        self._timeout_s = timeout_s
        self._importing = 0
        self._dead = False
        self.is_kept = False
        self._codes: dict[int, int] = {}
        self._started: dict[str, int] = {}
        self._added = FORKABLE if preload else {}
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "collector.process.forkserver", "--channel", str(theirs.fileno())]
        self._server = subprocess.Popen(
            command + (["--device", preload.device] if preload else []),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**(environ or os.environ), **self._added, **_SERVER, **spell_cores(cores)},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.import_also(preload or Preload(""))

    def import_also(self, preload: Preload) -> None:
        """Make the server import more libraries and classes. It is not ready before it has done so."""
        self._importing += 1
        self._ready_by = time.monotonic() + self._timeout_s
        lists = {"libraries": list(preload.libraries), "classes": list(preload.classes)}
        asked = {**lists, "has_cpp": preload.has_cpp}
        try:
            self._channel.send(json.dumps({"preload": asked}).encode())
        except OSError:
            self._dead = True

    @property
    def pid(self) -> int:
        """The process number of the server."""
        return self._server.pid

    @property
    def lost(self) -> bool:
        """Return whether the server has ended or does not answer."""
        return self._dead or self._server.poll() is not None

    def start(self, token: str, environ: Mapping[str, str], cores: Sequence[int], descriptors: Sequence[int]) -> int:
        """Start `python -m collector.process.worker` and return its process number.

        `descriptors` are its standard input, output and report. Raises `LauncherError` if the server is gone or does not answer.
        """
        request = {"start": token, "environ": {**environ, **self._added}, "cores": list(cores)}
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        except OSError as error:
            self._dead = True
            raise LauncherError(f"the fork server is gone ({error})") from error
        deadline = time.monotonic() + self._timeout_s
        while token not in self._started:
            self._receive(max(0.01, deadline - time.monotonic()))
        return self._started.pop(token)

    @property
    def is_ready(self) -> bool:
        """Return whether the server has imported everything, without waiting. A server that takes too long counts as lost."""
        while self._importing:
            try:
                self._receive(0)
            except BlockingIOError:
                self._dead = self._dead or time.monotonic() > self._ready_by
                return False
            except LauncherError:
                return False
        return True

    def exit_code(self, pid: int) -> int | None:
        """Return a process's exit code, or minus the signal's number; None while it runs or if the server has ended."""
        while pid not in self._codes:
            try:
                self._receive(0)
            except (BlockingIOError, LauncherError):
                break
        return self._codes.get(pid)

    def await_end(self, pid: int, seconds: float) -> None:
        """Wait until a process has ended, for at most `seconds`, since a process that hangs in a driver may never end."""
        deadline = time.monotonic() + seconds
        while self.exit_code(pid) is None and not self.lost and time.monotonic() < deadline:
            time.sleep(0.002)

    def reap(self, pid: int) -> None:
        """Release a process that has ended. The system may reuse its number afterwards."""
        self._codes.pop(pid, None)
        try:
            self._channel.send(json.dumps({"reap": pid}).encode())
        except OSError:
            return  # the server has ended, and its children with it

    def close(self) -> None:
        """End the server and all its processes, unless it is kept."""
        if self.is_kept and not self.lost:
            return
        self._channel.close()
        if self._importing:
            self._server.terminate()  # still importing: it has started no process and does not listen
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _receive(self, seconds: float) -> None:
        self._channel.settimeout(seconds)
        try:
            text = self._channel.recv(MESSAGE_BYTES)
        except TimeoutError as error:
            self._dead = True
            raise LauncherError(f"the fork server did not answer within {self._timeout_s:g} s") from error
        except ConnectionError as error:
            self._dead = True
            raise LauncherError(f"the fork server is gone ({error})") from error
        finally:
            self._channel.settimeout(None)
        if not text:
            self._dead = True
            raise LauncherError("the fork server is gone")
        message = json.loads(text)
        if "ready" in message:
            self._importing -= 1
        elif "started" in message:
            self._started[message["started"]] = int(message["pid"])
        else:
            self._codes[int(message["ended"])] = int(message["code"])
