"""What draws: HTML that the style sheet applies to, charts, and names as Streamlit's Markdown shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from markupsafe import Markup

from analysis.elements.charts import PICK, Figure
from analysis.elements.markup import joined, paragraph

#: Characters with a meaning in Markdown, Streamlit's colours, icons and formulas included.
_MARKDOWN = frozenset(r"\`*_{}[]()<>#+-.!|~$:&")


def markdown(name: str) -> str:
    """A name as Markdown that shows it as it is."""
    return "".join(f"\\{char}" if char in _MARKDOWN else char for char in name)


def show_figures(figures: Sequence[Figure], columns: int = 2) -> list[str]:
    """Draw the charts in so many columns, one alone over the whole width, and returns the names that were clicked."""
    places = st.columns(columns) if columns > 1 and len(figures) > 1 else [st.container()]
    names: list[str] = []
    for number, figure in enumerate(figures):
        picking: dict[str, Any] = {"on_select": "rerun", "selection_mode": PICK} if figure.picks else {}
        where = places[number % len(places)]
        event = where.altair_chart(figure.chart, key=figure.key, alt=figure.alt, **picking)
        names += [one["name"] for one in event.selection.get(PICK, ())] if figure.picks else []
    return list(dict.fromkeys(names))


def draw(*parts: str) -> None:
    """Draws HTML that the style sheet applies to."""
    st.html(Markup('<div class="iw">{}</div>').format(joined("", parts)))


def soft(*parts: str) -> None:
    """Draws a paragraph in a softer colour, its parts one a line."""
    draw(paragraph("soft", *parts))


def alert(*messages: str) -> None:
    """Draws a message each that is read out at once."""
    for message in messages:
        st.html(Markup('<div class="iw iw-state" role="alert">{}</div>').format(message))
