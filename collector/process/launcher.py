"""The parent's side of the fork server: starts it, asks it for processes, learns how they ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.machine.cores import spell_cores
from collector.process.forkserver import MESSAGE_BYTES
from collector.process.tokens import PLACEHOLDER, VARIABLE

#: What a process must have in its environment for its children to be forked from it.
_FORKABLE = {
    # Without it torch touches the GPU when it is asked whether there is one, after which no forked child can use it.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # OpenBLAS starts a thread per core when NumPy is imported; a process with one thread is forked without a doubt.
    "OPENBLAS_NUM_THREADS": "1",
    # Inductor's compile workers are forked from the cell as the cell is from the server: by default each cell starts a
    # new interpreter for them that imports torch once more, for a quarter of all CPU time that a small model takes.
    "TORCHINDUCTOR_WORKER_START": "fork",
}

#: What the server itself must have: a place for the token, output that a forked child which crashes does not keep, and
#: no pool of compile workers, which torch up to 2.7 makes on import and every cell would share.
_SERVER = {VARIABLE: PLACEHOLDER, "PYTHONUNBUFFERED": "1", "TORCH_WARM_POOL": "0"}


class LauncherError(Exception):
    """The fork server is gone, or did not come up."""


@dataclass(frozen=True, slots=True)
class Preload:
    """What the server imports before the first cell: for a device, libraries by name and classes as `module:name`."""

    device: str
    libraries: Sequence[str] = ()
    classes: Sequence[str] = ()


class Launcher:
    """Starts the processes of cells: forked from a server that has imported `preload`, or fresh ones without it.

    `environ` is the server's environment, `cores` those it keeps to while it imports: as many as a worker has, since
    torch sizes its thread pools by them. The server begins to import at once; `import_also` adds to it.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        preload: Preload | None = None,
        cores: Sequence[int] = (),
        timeout_s: float = 300,
    ) -> None:
        #: The names of the server's threads, once it has imported anything.
        self.ready: list[str] = []
        self._timeout_s = timeout_s
        self._importing = 0
        self._dead = False
        self._codes: dict[int, int] = {}
        self._started: dict[str, int] = {}
        self._added = _FORKABLE if preload else {}
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
        """Has the server import these libraries and classes as well; until it has, it is not ready."""
        self._importing += 1
        self._ready_by = time.monotonic() + self._timeout_s
        asked = {"libraries": list(preload.libraries), "classes": list(preload.classes)}
        try:
            self._channel.send(json.dumps({"preload": asked}).encode())
        except OSError:
            self._dead = True

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._server.pid

    @property
    def descriptor(self) -> int:
        """Readable when there may be news."""
        return self._channel.fileno()

    @property
    def lost(self) -> bool:
        """Whether the server has gone, or does not answer."""
        return self._dead or self._server.poll() is not None

    def start(self, token: str, environ: Mapping[str, str], cores: Sequence[int], descriptors: Sequence[int]) -> int:
        """Starts `python -m collector.process.worker` with standard input, standard output and report descriptors; its process.

        Raises:
            LauncherError: the server is gone, or does not answer.
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

    def wait_until_ready(self) -> None:
        """Waits until the server has imported everything. Raises `LauncherError` if it does not come up."""
        while self._importing:
            self._receive(max(0.01, self._ready_by - time.monotonic()))

    @property
    def is_ready(self) -> bool:
        """Whether the server has imported everything; does not wait. One that takes too long counts as lost."""
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
        """How a process ended: its code, minus the signal's number, or None while it runs or if the server is gone."""
        while pid not in self._codes:
            try:
                self._receive(0)
            except (BlockingIOError, LauncherError):
                break
        return self._codes.get(pid)

    def await_end(self, pid: int, seconds: float) -> None:
        """Waits until a process has ended, at most so long: one that hangs in a driver may never."""
        deadline = time.monotonic() + seconds
        while self.exit_code(pid) is None and not self.lost and time.monotonic() < deadline:
            time.sleep(0.002)

    def reap(self, pid: int) -> None:
        """Lets go of a process that has ended: from here on its number may be another's."""
        self._codes.pop(pid, None)
        try:
            self._channel.send(json.dumps({"reap": pid}).encode())
        except OSError:
            return  # the server is gone, and its children with it

    def close(self) -> None:
        """Ends the server and whatever it still runs."""
        self._channel.close()
        if self._importing:
            self._server.terminate()  # still importing: it has started nothing, and does not listen
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
            self.ready, self._importing = message["ready"], self._importing - 1
        elif "started" in message:
            self._started[message["started"]] = int(message["pid"])
        else:
            self._codes[int(message["ended"])] = int(message["code"])
