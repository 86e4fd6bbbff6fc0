"""Colours for what the style sheet does not reach: the canvas of data frames, and charts."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from pandas.io.formats.style import Styler

#: Half transparent, so that the same colours hold on light and dark. The word beside them says the same.
_BACKGROUNDS = {
    "worse": "rgba(217, 115, 31, 0.26)",
    "better": "rgba(47, 134, 209, 0.26)",
}
#: Rows of a table with backgrounds, at most.
MOST_PAINTED = 300
#: Okabe and Ito's, that people with any colour vision tell apart; six, since more are not told apart by anybody.
_SERIES = {
    "light": ("#0072B2", "#C77F00", "#009E73", "#B8568F", "#3A8FC0", "#C24E00"),
    "dark": ("#56B4E9", "#E69F00", "#2BC79A", "#CC79A7", "#F0E442", "#F08040"),
}
#: Of marks and lines that say neither good nor bad.
NEUTRAL = "#7c8794"
_SIDES = {"light": {"base": "#7a828c", "new": "#00795a"}, "dark": {"base": "#9aa3ad", "new": "#35c79d"}}
_BAD = {"light": "#B44A00", "dark": "#ffb077"}

#: Of lines that have the colour of text: enough contrast on either ground.
_INK = {"light": "#4a515a", "dark": "#c3cad2"}


def ink() -> str:
    """The colour of small lines among text."""
    return _INK[theme()]


def theme() -> str:
    """`light` or `dark`, as the reader's browser shows it now."""
    return "dark" if st.context.theme.type == "dark" else "light"


def series() -> tuple[str, ...]:
    """Up to six colours for lines."""
    return _SERIES[theme()]


def sides() -> dict[str, str]:
    """Colours of base and new, which are neither good nor bad."""
    return _SIDES[theme()]


def bad() -> str:
    """The colour of marks that say something is wrong."""
    return _BAD[theme()]


def painted(shown: pd.DataFrame, looks: pd.DataFrame) -> Styler | pd.DataFrame:
    """A table whose cells have backgrounds, `looks` being of its shape; a long table stays plain.

    A Styler takes about 20 microseconds a cell.
    """
    if len(shown) > MOST_PAINTED:
        return shown
    colors = {look: f"background-color: {color}" for look, color in _BACKGROUNDS.items()}
    css = looks.map(lambda look: colors.get(look, ""))
    return shown.style.apply(lambda _: css, axis=None)
