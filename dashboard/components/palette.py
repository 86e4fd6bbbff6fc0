"""Colours for what the style sheet does not reach: charts."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

#: Of marks and lines that say neither good nor bad.
NEUTRAL = "#7c8794"


@dataclass(frozen=True, slots=True)
class Colors:
    """The colours of charts on a light or a dark page.

    `series` begin with Okabe and Ito's and end with two that differ in lightness: six that are told apart with any colour
    vision. `bad` marks what is wrong; base and new are neither good nor bad.
    """

    series: tuple[str, ...]
    base: str
    new: str
    bad: str


COLORS = {
    "light": Colors(
        ("#0072B2", "#C77F00", "#009E73", "#B8568F", "#4D4D4D", "#8C1C13"),
        *("#7a828c", "#00795a", "#B44A00"),
    ),
    "dark": Colors(
        ("#56B4E9", "#E69F00", "#2BC79A", "#CC79A7", "#F0E442", "#E8E8E8"),
        *("#9aa3ad", "#35c79d", "#ffb077"),
    ),
}


def colors() -> Colors:
    """The colours of the page as the reader's browser shows it now."""
    return COLORS["dark" if st.context.theme.type == "dark" else "light"]
