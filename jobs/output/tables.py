"""Tables on a terminal: numbers to the right, texts as they are, no line longer than the terminal is wide."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from jobs.output.terminal import one_line

#: What stands for "not measured".
NOTHING = "-"
#: Columns of numbers that no unit in their heading tells.
_NUMBERS = frozenset(("paired", "pass rate", "base", "new", "more runs", "cells", "worker-hours"))
#: Where there is little room the first column, of names, is broken into lines of this length.
_NAMES = 28
#: Wider than any table of ours: what goes to a file is not cut.
_UNLIMITED = 400


class FittingTable(Table):
    """A table that leaves out columns where it finds no room for all, and names them: `spare` ones first, then the last."""

    spare: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws as many columns as fit."""
        wide = options.update(max_width=10 * _UNLIMITED)
        headings = [str(column.header) for column in self.columns]
        order = [*self.spare, *(name for name in reversed(headings[2:]) if name not in self.spare)]
        shown, left_out = self._without([]), list[str]()
        while order and shown._least_width(console, wide) > options.max_width:
            left_out.append(order.pop(0))
            shown = self._without(left_out)
        if console.measure(shown, options=wide).maximum > options.max_width:
            shown.columns[0].no_wrap, shown.columns[0].overflow = False, "fold"
        yield from Table.__rich_console__(shown, console, options)
        if left_out:
            names = ", ".join(name for name in headings if name in left_out)
            yield Text(f"left out for want of room: {names} (a wider terminal, or a larger COLUMNS, shows all)")

    def _without(self, left_out: Sequence[str]) -> FittingTable:
        found = copy(self)
        columns = [column for column in self.columns if column.header not in left_out]
        found.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
        return found

    def _least_width(self, console: Console, wide: ConsoleOptions) -> int:
        first = max((console.measure(cell, options=wide).maximum for cell in self.columns[0].cells), default=0)
        return console.measure(self, options=wide).maximum - max(first - _NAMES, 0)


def console() -> Console:
    """A console as wide as the terminal, or as COLUMNS says; what goes to a file or a pipe is not cut."""
    found = Console()
    return found if found.is_terminal or os.environ.get("COLUMNS", "").isdigit() else Console(width=_UNLIMITED)


def make_table(*headings: str, spare: Sequence[str] = ()) -> Table:
    """An empty table; columns of numbers (by the unit in their heading) are set to the right.

    `spare` columns are the first to be left out where there is little room, in this order.
    """
    table = FittingTable(box=box.SIMPLE_HEAD, pad_edge=False)
    table.spare = tuple(spare)
    for heading in headings:
        numeric = heading.endswith((" x", " s", " ms", "%")) or heading in _NUMBERS
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    return table


def add_row(table: Table, *cells: str) -> None:
    """Appends a row of texts."""
    table.add_row(*map(plain, cells))


def plain(line: str) -> Text:
    """A text that is no markup, whatever brackets it has, and no order to the terminal, whatever escapes."""
    return Text(one_line(line))


def signed(change: float | None) -> str:
    """A percentage with its sign; empty for None."""
    return "" if change is None else f"{change:+.1f}%"
