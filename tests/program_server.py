"""Programs of this project run by processes that are forked from one that has imported them: `ask` and `serve`."""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_IMPORTED = ("analysis", "db", "jobs.commands")
_MESSAGE_BYTES = 1 << 20


def ask(
    address: str,
    module: str,
    words: Sequence[str],
    folder: str,
    environ: Mapping[str, str],
    streams: Sequence[int],
    prelude: str = "pass",
) -> int:
    """Run `main` of a module after the code `prelude`, by the server at an address; return the exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
        channel.connect(address)
        request = [module, list(words), folder, dict(environ), prelude]
        socket.send_fds(channel, [json.dumps(request).encode()], streams)
        return int(channel.recv(16))  # empty, and no number, where the server's process has died


def serve(address: str) -> None:
    """Import the programs and answer requests until standard input is closed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{address}.new")
        listener.listen(64)
        Path(f"{address}.new").rename(address)  # who finds it is heard
        for name in _IMPORTED:
            package = import_module(name)
            for module in pkgutil.walk_packages(package.__path__, f"{name}."):
                import_module(module.name)
        os.fsync = lambda _: None  # as in the tests themselves
        gc.freeze()  # else each process copies all of it when it collects garbage
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that answer
        while listener in select.select([0, listener], [], [])[0]:
            channel, _ = listener.accept()
            if not os.fork():
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(channel)
            channel.close()


def _answer(channel: socket.socket) -> NoReturn:
    text, streams, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 3)
    if not (pid := os.fork()):
        channel.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _become(*json.loads(text))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    channel.send(str(code).encode())
    os._exit(0)


def _become(module: str, words: Sequence[str], folder: str, environ: Mapping[str, str], prelude: str) -> NoReturn:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["inductor-watch", *words]
    try:
        exec(f"import sys; {prelude}")  # noqa: S102 - the code of a test
        ended = import_module(module).main()
    except SystemExit as end:
        ended = end.code
    except BaseException:
        ended = traceback.format_exc()
    code = ended if isinstance(ended, int) else int(ended is not None)
    if code and ended is not code:
        sys.stderr.write(f"{ended}\n")
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
