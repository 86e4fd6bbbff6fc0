"""Output of commands: one line for an error, no traceback. Texts of a bundle or a database may be anybody's.

In a workflow of GitHub Actions a step also hands outputs to later steps.
"""

from __future__ import annotations

import errno
import json
import math
import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from collector.masking import mask, mask_own
from collector.usage_errors import ConfigError, ExpectedError
from collector.usage_errors import one_line as one_line

#: The most characters of one line: a name of 10 kB must not fill the screen.
LONGEST = 2000


def several(count: int, what: str) -> str:
    """Return `1 cell`, `2 cells`: `db.store_errors.counted` for code that must not import a database (`jobs.pool.child`)."""
    return f"{count} {what}{'s' * (count != 1)}"


def the_first(names: Sequence[str], most: int = 5) -> str:
    """Return `a, b and 3 more`: at most `most` names, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def print_lines(lines: Iterable[str], err: bool = False, most: int | None = None) -> None:
    """Print each text as one line; of more than `most` texts print the first ones and the number of the others."""
    lines = list(lines)
    for line in lines[:most]:
        click.echo(one_line(mask(line), LONGEST), err=err)
    if most is not None and len(lines) > most:
        click.echo(f"... and {len(lines) - most} more (--json has all)", err=err)


def tell(line: str) -> None:
    """Print a line of progress on standard error."""
    print_lines([line], err=True)


def print_json(document: Any) -> None:
    """Print a document for `--json`."""
    click.echo(json_text(document))


def json_text(document: Any) -> str:
    """Return a document as JSON: moments in ISO 8601, and null for NaN and infinities, which JSON has not."""
    try:
        return json.dumps(document, indent=2, default=datetime.isoformat, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(document), indent=2, default=datetime.isoformat, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Hand values to the later steps and jobs of a workflow, as lines `name=value` in the file `GITHUB_OUTPUT`.

    Raises:
        ConfigError: `GITHUB_OUTPUT` names no file.
    """
    with outputs_file(environ).open("a", encoding="utf-8") as stream:
        stream.write("".join(f"{name}={text}\n" for name, text in values.items()))


def outputs_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a step's outputs. Raises `ConfigError` outside a step of GitHub Actions."""
    path = environ.get("GITHUB_OUTPUT")
    if not path:
        raise ConfigError("GITHUB_OUTPUT names no file: --github-output is for a step of GitHub Actions")
    return Path(path)


#: The end of a message that a run stopped early.
TO_RESUME = "what was measured is in the bundle, `inductor-watch resume` measures the rest"

#: Exit codes of errors; 2 is also Click's code for wrong usage.
USAGE, INTERNAL = 2, 4


class NothingBegunError(KeyboardInterrupt):
    """An interruption before anything was measured."""


def is_bug(error: Exception) -> bool:
    """Return whether an error is a bug: neither the input nor the machine explains it."""
    return not isinstance(error, (ExpectedError, OSError, click.ClickException, click.Abort, click.exceptions.Exit))


def report_error(error: Exception) -> int:
    """Print one line for an error, and return its exit code; `INDUCTOR_WATCH_TRACEBACK=1` shows the traceback of a bug."""
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
    click.echo(f"inductor-watch: {one_line(' '.join(mask_own(text).split()), LONGEST)}", err=True)
    return code


def _comes_from_torch(error: Exception) -> bool:
    """Return whether torch, or a library that it needs, raised an error: a build for another CUDA or Python is installed."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] == "torch" for frame in frames)
