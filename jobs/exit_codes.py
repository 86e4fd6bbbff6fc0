"""What a command says of an error, and the code that it exits with: one line, no traceback."""

from __future__ import annotations

import errno
import os
import traceback

import click

from collector.masking import mask_own
from collector.usage_errors import ExpectedError
from jobs.output import terminal

#: Exit codes of errors; 2 is also that of Click for wrong usage.
USAGE, INTERNAL = 2, 4


class NothingBegunError(KeyboardInterrupt):
    """An interruption before anything was measured."""


def is_bug(error: Exception) -> bool:
    """Whether neither the input nor the machine explains an error."""
    return not isinstance(error, (ExpectedError, OSError, click.ClickException, click.Abort, click.exceptions.Exit))


def report_error(error: Exception) -> int:
    """Prints one line for an error and returns its exit code; `INDUCTOR_WATCH_TRACEBACK=1` shows the traceback of a bug."""
    if isinstance(error, ExpectedError):
        return _say(str(error), error.exit_code)
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        help_of = f" (see {context.command_path} --help)" if context else ""
        return _say(error.format_message().rstrip(".") + help_of, error.exit_code)
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        advice = ": make room and repeat; what was written before is whole" if error.errno == errno.ENOSPC else ""
        return _say(f"{file}{error.strerror or error}{advice}", INTERNAL)
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == "torch":
        return _say("this needs torch, and the Python that runs it has none: install it there", USAGE)
    if isinstance(error, ImportError) and _comes_from_torch(error):
        return _say(f"torch does not import here: {error}: install it again", USAGE)
    if os.environ.get("INDUCTOR_WATCH_TRACEBACK"):
        raise error
    text = f"{type(error).__name__}: {error or 'no message'}"
    return _say(f"internal error, {text} (INDUCTOR_WATCH_TRACEBACK=1 says where)", INTERNAL)


def _say(text: str, code: int) -> int:
    click.echo(f"inductor-watch: {terminal.one_line(' '.join(mask_own(text).split()))}", err=True)
    return code


def _comes_from_torch(error: Exception) -> bool:
    """Whether torch, or a library that it needs, raised it: a build for another CUDA or Python is installed."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] == "torch" for frame in frames)
