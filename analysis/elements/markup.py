"""Pieces of HTML. A plain text is escaped wherever it is put in; only `Markup`, which these functions make, is not."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.elements.wording import ChangeWords
from collector.vocabulary import NOT_APPLICABLE, Status, status_words

_TABLE = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
).get_template("table.html.j2")


#: Makes the address of a page from its name and what its query has besides what all pages share.
Link = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell with a CSS class of its own."""

    content: str
    css: str = ""


def anchor(href: str, content: str) -> Markup:
    """A link in this tab."""
    return Markup('<a href="{}" target="_self">{}</a>').format(href, content)


def span(css: str, content: str) -> Markup:
    """A span of a class."""
    return Markup('<span class="{}">{}</span>').format(css, content)


def mono(content: str, title: str = "") -> Markup:
    """A name of code, with a title for the pointer."""
    return Markup('<span class="iw-mono" title="{}">{}</span>').format(title, content)


def joined(separator: str, parts: Iterable[str]) -> Markup:
    """The parts, those that are empty left out, with HTML between them."""
    return Markup(separator).join(part for part in parts if part)  # noqa: S704 -- separators are literals


def lines(*parts: str) -> Markup:
    """The parts, one a line."""
    return joined("<br>", parts)


def change_cells(change: ChangeWords | None) -> list[Markup | str]:
    """The cells of a change: its size with glyph and sign, its interval, and the word."""
    if change is None:
        return ["", "", ""]
    return [span(change.look, change.size), span("soft", change.interval), span(change.look, change.word)]


def status_tag(status: object, details: Mapping[str, Any] = MappingProxyType({})) -> Markup:
    """A status as a small label; anything but a text stands for a missing cell.

    With the details of its measurement a pass says whether it was checked by cosine alone.
    """
    if not isinstance(status, str):
        return span("tag missing", "missing")
    css = "tag pass" if status == Status.PASS else "tag" if status in NOT_APPLICABLE else "tag fail"
    return span(css, status_words(status, details))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    note: str = "",
    numbers: Container[int] = (),
    of: str = "",
) -> Markup:
    """A table whose first column names the rows; other values are texts, HTML, or a `Cell`. `numbers` are aligned right.

    `of` tells it from another table of the page with the same caption, for screen readers.
    """
    words = {"caption": caption, "note": note, "of": of, "head": head, "numbers": numbers}
    return Markup(_TABLE.render(**words, rows=list(rows)))  # noqa: S704 -- escaped by Jinja2


def paragraph(css: str, *parts: str) -> Markup:
    """A paragraph of a class, its parts one a line."""
    return Markup('<p class="{}">{}</p>').format(css, lines(*parts))


def bullets(css: str, items: Iterable[str]) -> Markup:
    """A list of a class."""
    return Markup('<ul class="{}">{}</ul>').format(css, joined("", (Markup("<li>{}</li>").format(i) for i in items)))
