"""Pieces of HTML. Whatever comes from the data passes through `text`, since names, errors and logs are anybody's."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collector.vocabulary import NOT_APPLICABLE, Status, status_words
from dashboard.components.changes import Change

#: Characters with a meaning in Markdown, Streamlit's colours, icons and formulas included.
_MARKDOWN = frozenset(r"\`*_{}[]()<>#+-.!|~$:&")


def markdown(name: str) -> str:
    """A name as Markdown that shows it as it is."""
    return "".join(f"\\{char}" if char in _MARKDOWN else char for char in name)


def text(value: object) -> str:
    """Anything as harmless HTML."""
    return html.escape(str(value), quote=True)


def anchor(href: str, inner: str) -> str:
    """A link in this tab; `inner` is HTML."""
    return f'<a href="{text(href)}" target="_self">{inner}</a>'


def span(css: str, inner: str) -> str:
    """A span of a class; `inner` is HTML."""
    return f'<span class="{css}">{inner}</span>'


def change(found: Change | None) -> list[str]:
    """The cells of a change: its size with glyph and sign, its interval, and the word."""
    if found is None:
        return [cell(""), cell(""), cell("")]
    sure = span("soft", text(found.interval))
    return [
        cell(span(found.look, text(found.size)), "n"),
        cell(sure, "n"),
        cell(span(found.look, text(found.word)), "n"),
    ]


def status_tag(status: str | None, details: Mapping[str, Any] = MappingProxyType({})) -> str:
    """A status as a small label: failing, passing, not asked and missing look different, and say it.

    With the details of its measurement a pass says whether it was checked by cosine alone.
    """
    if not isinstance(status, str):
        return span("tag missing", "missing")
    if status == Status.PASS:
        return span("tag pass", text(status_words(status, details)))
    return span("tag" if status in NOT_APPLICABLE else "tag fail", text(status))


def table(
    caption: str, head: Sequence[str], rows: Iterable[str], *, note: str = "", numbers: int = -1, of: str = ""
) -> str:
    """A table with a caption (text), column heads (text) and rows (HTML); heads from `numbers` on are right-aligned.

    `of` tells it from another one of the page with the same caption, to those who hear it.
    """
    heads = "".join(
        f'<th scope="col"{" class=n" if 0 <= numbers <= index else ""}>{text(name)}</th>'
        for index, name in enumerate(head)
    )
    name = f"{caption}: {of}" if of else caption
    small = f" <small>{text(note)}</small>" if note else ""
    return (
        f'<div class="iw-scroll" tabindex="0" role="region" aria-label="{text(name)}"><table>'
        f"<caption>{text(caption)}{small}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(head: str, cells: Iterable[str]) -> str:
    """A row: its head (HTML) and its cells (whole `td` elements)."""
    return f'<tr><th scope="row">{head}</th>{"".join(cells)}</tr>'


def cell(inner: str, css: str = "") -> str:
    """One `td`; `inner` is HTML."""
    return f'<td class="{css}">{inner}</td>' if css else f"<td>{inner}</td>"


def block(*parts: str) -> str:
    """HTML that the style sheet applies to."""
    return f'<div class="iw">{"".join(parts)}</div>'


def cards(items: Iterable[tuple[str, str, str]]) -> str:
    """Key figures: title, figure and note of each; figure and note are HTML."""
    found = "".join(
        f'<div class="iw-card"><dt>{text(title)}</dt><dd>{figure}</dd><dd class="note">{note}</dd></div>'
        for title, figure, note in items
    )
    return f'<dl class="iw-cards">{found}</dl>'


def line_legend(lines: Iterable[tuple[str, str, str]]) -> str:
    """A piece of each line and its name: its colour, how it is drawn (a `border-style`), and the name."""
    items = "".join(
        f'<span><i class="line" style="border-top: 3px {dash} {color}"></i>{text(name)}</span>'
        for color, dash, name in lines
    )
    return f'<div class="iw-legend">{items}</div>'


def legend(colors: Iterable[str], names: Iterable[str]) -> str:
    """A dot and a name each: one legend for all charts of a page."""
    pairs = zip(colors, names, strict=False)
    items = "".join(f'<span><i style="background:{color}"></i>{text(name)}</span>' for color, name in pairs)
    return f'<div class="iw-legend">{items}</div>'
