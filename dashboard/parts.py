"""What a page's own widgets change is drawn anew alone, without the pickers at the left and what else stays as it is.

A run of the whole script has the browser look through everything on the page, which takes as long again as what has changed.
What belongs to all pages (`url.SHARED`) is in the links of the navigation, so its widgets stand outside of parts; and all of the
address is in the permalink: while that is open, the whole page is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import data, sending, turns
from dashboard.components import empty_states as states
from dashboard.selection import Selection

_WHOLE = "whole"


def whole(is_whole: bool) -> None:
    """Whether parts are drawn with the page only, since something outside them shows what is chosen in them."""
    st.session_state[_WHOLE] = is_whole


def part(draw: Callable[[Selection], None], selection: Selection) -> None:
    """Draws a part of a page, once in a container; its widgets draw it anew, and where data came in meanwhile the whole page."""
    if st.session_state.get(_WHOLE, False):
        draw(selection)
        return
    is_first = True

    def again() -> None:
        nonlocal is_first
        if is_first:
            # With the page, which has its turn and says what it cannot read; but what is raised here does not reach it.
            is_first = False
            with states.said_plainly():
                draw(selection)
            return
        with turns.taken(), sending.together(), states.said_plainly():
            if data.opened().stamp != selection.data.stamp:
                st.rerun()
            draw(selection)

    # Streamlit tells fragments in one place apart by the name of their function.
    again.__qualname__ = f"{draw.__module__}.{draw.__qualname__}"
    st.fragment(again)()
