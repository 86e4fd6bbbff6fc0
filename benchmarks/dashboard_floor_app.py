"""The least that Streamlit can be asked for in the dashboard's shape: its side bar, a page of a few elements, one of a table.

For `benchmarks/dashboard_floor.py`. Nothing is read and nothing computed: what the browser needs to show this is Streamlit's.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import streamlit as st

#: As the dashboard on the store of the benchmark: what each box of a side offers and how long a line of it is; the rows and
#: columns of Compare's table, of which so many are texts.
OPTIONS, LETTERS, ROWS, COLUMNS, TEXTS = 64, 110, 100, 42, 14
_PAGES = ("Overview", "Compare", "Model", "Trends", "Regressions", "Runs", "About the numbers")


@functools.cache
def _options() -> list[str]:
    return [f"{number:04d} ".ljust(LETTERS, "x") for number in range(OPTIONS)]


def _sidebar() -> None:
    for page in _LISTED:
        st.page_link(page)
    st.selectbox("Base", _options(), key="base")
    st.button("Swap", width="stretch")
    st.selectbox("New", _options(), key="new")
    columns = st.columns(2, gap="small")
    for place, key in enumerate(("phase", "dtype", "device", "suite")):
        columns[place % 2].selectbox(key, ["all", f"one {key}", f"another {key}"], key=key)
    st.multiselect("Configs", [f"config {number}" for number in range(12)], key="configs")
    st.expander("Permalink", key="permalink", on_change="rerun")


def few(title: str) -> None:
    """A title, a sentence that tells the picks, and four boxes beside each other."""
    st.title(title, anchor=False)
    st.html(f"<p class='said'>{title}: {st.session_state.get('suite')}, {st.session_state.get('base', '')[:4]}</p>")
    for place, column in enumerate(st.columns(4)):
        column.selectbox(f"box {place}", ["one", "two", "three"], key=f"{title} {place}")
    st.caption("Nothing else.")


@functools.cache
def rows(start: int) -> pd.DataFrame:
    """Texts and numbers, other ones for every start."""
    numbers = np.random.default_rng(start).normal(1, 0.1, (ROWS, COLUMNS - TEXTS))
    texts = {
        f"text {place}": [f"name {start} {37 * row % ROWS} {place}" for row in range(ROWS)] for place in range(TEXTS)
    }
    return pd.DataFrame(texts | {f"number {place}": numbers[:, place] for place in range(COLUMNS - TEXTS)})


def table(title: str) -> None:
    """A title, a filter and a table, with a format for every column of numbers."""
    st.title(title, anchor=False)
    words = st.text_input("Filter", key="filter")
    st.caption(f"rows of {words or 'nothing'}")
    shown = rows(len(words))
    st.dataframe(
        shown,
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(format="%.2f") for name in shown.columns if name.startswith("number")
        },
        height=35 * 23 + 3,
        key="cells",
        on_select="ignore",
    )


def _listed(title: str) -> st.Page:
    draw = functools.partial(table if title == "Compare" else few, title)
    return st.Page(draw, title=title, url_path=title.lower().replace(" ", "-"), default=title == _PAGES[0])


_LISTED = [_listed(title) for title in _PAGES]

st.set_page_config(page_title="the least", layout="wide")
page = st.navigation(_LISTED, position="hidden")
with st.sidebar:
    _sidebar()
page.run()
