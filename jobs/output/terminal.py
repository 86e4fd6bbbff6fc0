"""Texts of a bundle or a database on their way to a terminal: somebody else wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from collector.masking import mask

#: Characters of one line; a name of 10 kB fills no screen.
_LONGEST = 2000


def one_line(text: str, limit: int = _LONGEST) -> str:
    """The text without anything that breaks a line, steers the terminal or turns the writing round, cut to `limit`.

    Each such character becomes U+FFFD, so that one sees that there was something. `--json` has the text as it is.
    """
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def several(count: int, what: str) -> str:
    """`1 cell`, `2 cells`: `db.store_errors.counted`, for what must not import a database (`jobs.pool.child`)."""
    return f"{count} {what}{'s' * (count != 1)}"


def the_first(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: at most so many names, and how many others there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def print_lines(lines: Iterable[str], err: bool = False, most: int | None = None) -> None:
    """Prints each text as one line; of more than `most` how many others there are."""
    lines = list(lines)
    for line in lines[:most]:
        click.echo(one_line(mask(line)), err=err)
    if most is not None and len(lines) > most:
        click.echo(f"... and {len(lines) - most} more (--json has all)", err=err)


def tell(line: str) -> None:
    """Prints a line of progress on standard error."""
    print_lines([line], err=True)


def print_json(document: Any) -> None:
    """Prints what `--json` asks for; moments are ISO 8601."""
    click.echo(json.dumps(document, indent=2, default=datetime.isoformat))
