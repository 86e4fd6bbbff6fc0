"""What a page says when there is nothing to show: one sentence, and what to do about it."""

from __future__ import annotations

import streamlit as st

from dashboard.markup import text

FILL = """\
make nightly                     # measure this machine's zoo and store it
inductor-watch ingest data/h200  # or read the bundles that came with the checkout"""


def show(title: str, sentence: str, commands: str = "") -> None:
    """A calm box; the commands, if any, below it to copy."""
    st.html(f'<div class="iw iw-state" role="status"><h1>{text(title)}</h1>{text(sentence)}</div>')
    if commands:
        st.code(commands, language=None)  # the colours of words are too faint for some
