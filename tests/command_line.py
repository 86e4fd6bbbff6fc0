"""The command line as people call it: `call` returns its exit code and what it printed.

A call is a process forked from one that has imported the program: as real as a new interpreter, and a second faster.
"""

from __future__ import annotations

import atexit
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from collector.machine.toolchain import SKIP_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
_SERVE = "from tests.command_line import serve; serve()"
_IMPORTED = ("analysis", "db", "jobs.commands")


def call(*words: object, folder: Path, prelude: str = "pass", **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs `inductor-watch WORDS` in a folder after the code `prelude`, with these variables besides the suite's own.

    Cells trust the CPU's flags: the probes of its instruction sets take seconds in each run.
    """
    arguments = list(map(str, words))
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", SKIP_VARIABLE: "1", **environ}
    with tempfile.TemporaryDirectory() as files:
        outputs = [Path(files, name) for name in ("out", "err")]
        request = [arguments, str(folder), prelude, variables, list(map(str, outputs))]
        server = _server()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in outputs))


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


@cache
def _server() -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}  # no threads: it forks
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVE], cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)
    return server


def serve() -> None:
    """Imports the program and answers requests on standard input until that is closed."""
    for name in _IMPORTED:
        package = import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            import_module(module.name)
    while line := sys.stdin.readline():
        if not (pid := os.fork()):
            _become(*json.loads(line))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(1, f"{code}\n".encode())


def _become(
    words: Sequence[str], folder: str, prelude: str, variables: Mapping[str, str], outputs: Sequence[str]
) -> None:
    from jobs.cli import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = variables["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["inductor-watch", *words]
    exec(f"import sys; {prelude}")  # noqa: S102 - the code of a test
    main()
