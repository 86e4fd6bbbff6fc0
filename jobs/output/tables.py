"""Tables on a terminal: numbers to the right, texts without markup, no line longer than the terminal is wide."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import NoReturn

import click
from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from collector.masking import mask
from jobs.output.terminal import LONGEST, one_line

#: Columns of numbers whose heading names no unit.
_NUMBERS = frozenset(("paired", "pass rate", "base", "new", "change", "adjusted", "more runs", "cells", "worker-hours"))
#: With little room, the first column, of names, is broken into lines of the first length, and columns of words of the second.
_NAMES, _FOLDED = 20, 11
#: A width larger than any of our tables, so that output to a file is not cut.
_UNLIMITED = 400


@dataclass
class FittingTable:
    """A table that leaves out columns for lack of room, and names them: `spare` columns first, then from the last one on.

    Columns of numbers (by the unit in their heading) are set to the right. `folded` columns of words are broken into lines
    if there is little room; where the column `needed` has a name, only if there is no room for it otherwise. Without room for
    that the whole table is left out.
    """

    headings: Sequence[str]
    spare: Sequence[str] = ()
    folded: Sequence[str] = ()
    needed: str = ""
    rows: list[list[Text]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        """Append a row of texts."""
        self.rows.append([plain(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with as many columns as fit, and a line that names the others."""
        wide = options.update(max_width=10 * _UNLIMITED)

        def fits(table: Table) -> bool:
            return console.measure(table, options=wide).maximum <= options.max_width

        if fits(self._drawn()):
            yield self._drawn()
            return
        order = [*self.spare, *(name for name in reversed(self.headings[2:]) if name not in self.spare)]
        for folded in ((), self.folded) if self.needed else (self.folded,):
            drawn = (self._drawn(order[:count], _NAMES, folded, is_narrow=True) for count in range(len(order)))
            left_out = order[: next((count for count, table in enumerate(drawn) if fits(table)), len(order))]
            if self.needed not in left_out:
                break
        names = ", ".join(name for name in self.headings if name in left_out)
        if self.needed in left_out:
            names = f"the table by {self.headings[0]}"
        else:
            yield Text("")
            yield self._drawn(left_out, folded=folded, is_narrow=True)
        if left_out:
            yield Text(f"left out for want of room: {names} (a wider terminal, or a larger COLUMNS, shows all)")

    def _drawn(
        self,
        left_out: Sequence[str] = (),
        first_width: int | None = None,
        folded: Sequence[str] = (),
        *,
        is_narrow: bool = False,
    ) -> Table:
        """Return the columns that are not left out; `folded` ones break into lines, the first at `first_width` letters."""
        padding = (0, 0, 0, 0) if is_narrow else (0, 1, 0, 0)
        table = Table(box=box.SIMPLE_HEAD, show_edge=not is_narrow, pad_edge=False, padding=padding)
        shown = [index for index, heading in enumerate(self.headings) if heading not in left_out]
        for index in shown:
            heading, is_first = self.headings[index], index == 0
            is_number = heading.endswith((" x", " s", " ms", "%")) or heading in _NUMBERS
            is_folded = heading in folded
            width = first_width if is_first else _FOLDED if is_folded and first_width else None
            justify: JustifyMethod = "right" if is_number else "left"
            no_wrap = not is_first and not is_folded
            table.add_column(heading, justify=justify, no_wrap=no_wrap, overflow="fold", max_width=width)
        for row in self.rows:
            table.add_row(*(row[index] for index in shown))
        return table


class PipeConsole(Console):
    """A console that raises `BrokenPipeError` if the reader of its output has left, where rich exits with 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error, which the command line turns into an exit code."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def console() -> Console:
    """Return a console as wide as the terminal, or as COLUMNS says; output to a file or a pipe is not cut."""
    terminal = PipeConsole()
    is_limited = terminal.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return terminal if is_limited else PipeConsole(width=_UNLIMITED)


def print_wrapped(line: str, indent: int) -> None:
    """Print a line, wrapped at the terminal's width; the lines below are indented by `indent` columns."""
    below = " " * indent
    click.echo(fill(line, console().width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False))


def plain(line: str) -> Text:
    """Return a text whose brackets are no markup and whose control characters do not reach the terminal."""
    return Text(one_line(line, LONGEST))


def say(out: Console, line: str) -> None:
    """Print a line with its secrets masked; the terminal wraps a line that is longer than its width."""
    out.print(plain(str(mask(line))), soft_wrap=True)
