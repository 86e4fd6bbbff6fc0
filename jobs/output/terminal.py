"""Texts of a bundle or a database on their way to a terminal: somebody else wrote them."""

from __future__ import annotations

import click

#: Characters of one line; a name of 10 kB fills no screen.
_LONGEST = 2000


def one_line(text: str, limit: int = _LONGEST) -> str:
    """The text without anything that breaks a line, steers the terminal or turns the writing round, cut to `limit`.

    Each such character becomes U+FFFD, so that one sees that there was something. `--json` has the text as it is.
    """
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def tell(line: str) -> None:
    """Prints a line of progress on standard error."""
    click.echo(one_line(line), err=True)
