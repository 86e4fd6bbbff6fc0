"""The command line as people call it: `call` returns its exit code and what it printed.

A call is a process forked from one that has imported the program: as real as a new interpreter, and a second faster.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from collector.machine.toolchain import SKIP_VARIABLE
from tests.program_server import ask

ROOT = Path(__file__).resolve().parents[1]


def call(*words: object, folder: Path, prelude: str = "pass", **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs `inductor-watch WORDS` in a folder after the code `prelude`, with these variables besides the suite's own.

    Cells trust the CPU's flags: the probes of its instruction sets take seconds in each run.
    """
    arguments = list(map(str, words))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", SKIP_VARIABLE: "1", **environ}
    with ExitStack() as files:
        streams = [files.enter_context(Path(os.devnull).open())]
        streams += [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
        descriptors = [stream.fileno() for stream in streams]
        code = ask(server_address(), "jobs.cli", arguments, str(folder), variables, descriptors, prelude)
        for stream in streams[1:]:
            stream.seek(0)
        return subprocess.CompletedProcess(arguments, code, *(stream.read() for stream in streams[1:]))


def tell(done: subprocess.CompletedProcess[str]) -> str:
    """All about a call, for the message of an assertion."""
    return f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"


def is_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Asserts that a call failed with this code and one line that has these words."""
    assert done.returncode == code, tell(done)
    assert "Traceback" not in done.stdout + done.stderr
    assert "internal error" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    # Click shows the usage before what is wrong with it; the last line is what counts.
    assert [line for line in errors if not line.startswith(("Usage:", "Try "))] == errors[-1:], tell(done)
    for word in words:
        assert word in errors[-1], tell(done)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_healthy(port: int) -> bool:
    """Whether a dashboard answers at a port."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
        return answer.read() == b"ok"
    return False


@cache
def server_address() -> str:
    """Where the server that `call` asks listens; the first call starts it."""
    folder = tempfile.mkdtemp(prefix="server-")
    address = str(Path(folder, "socket"))
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}  # no threads: it forks
    code = f"from tests.program_server import serve; serve({address!r})"
    server = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.communicate)
    while not Path(address).exists():
        assert server.poll() is None, "the server did not start"
        time.sleep(0.01)
    return address
