"""The title of a page, and the button beside it that copies a link to what is shown."""

from __future__ import annotations

import streamlit as st

from analysis.reports.permalinks import fixed_side
from dashboard import url
from dashboard.components import copying
from dashboard.selection import NOTHING, remembered

_HELP = (
    "The link names base and new as they are shown now: a night or a run stays as it is, a commit takes in further runs of it. "
    "In the browser's own address, latest, previous and a branch follow newer runs."
)
_COPIED = "Copied. Newer nights do not change what it shows."


def title(text: str) -> None:
    """Draws the title of a page with *Copy link* beside it; `text` is Markdown."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(text, anchor=False, width="content")
        copying.button("copy_link", "Copy link", _COPIED, query=frozen_query(), title=_HELP)


def frozen_query() -> str:
    """The query of this page with both sides spelled out, so that it means the same tomorrow."""
    query = {key: url.get_all(key) for key in st.query_params}
    if selection := remembered():
        base = fixed_side(selection.base) if selection.base else NOTHING
        query |= {"base": [base], "new": [fixed_side(selection.new)]}
    return url.address("", query) or "?"
