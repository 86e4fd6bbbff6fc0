"""Tables on a terminal: numbers to the right, texts as they are."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from jobs.terminal import one_line

#: What stands for "not measured".
NOTHING = "-"


def make_table(*headings: str) -> Table:
    """An empty table; columns of numbers (by the unit in their heading) are set to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        numeric = heading.endswith((" x", " s", " ms", "%")) or heading in (
            "paired",
            "pass rate",
            "base",
            "new",
            "more runs",
        )
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
