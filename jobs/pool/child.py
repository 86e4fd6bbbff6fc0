"""A process that measures for another one: its request comes as a line on standard input, and it ends when the other does."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import click


def serve(measure: Callable[[dict[str, Any]], None]) -> NoReturn:
    """Measures what the line asks for and exits with the codes of the command line.

    Who asked keeps standard input open. When it ends, be it that the other process was killed, this one ends as if it had
    been interrupted, and its cells with it.
    """
    from jobs.cli import report_error

    request: dict[str, Any] = json.loads(sys.stdin.readline())
    # A shell that starts something in the background has it ignore this signal, and its children with it; Ray blocks it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = 0
    try:
        measure(request)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        code = report_error(error)
    sys.exit(code)


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
