"""What a page says when there is nothing to show: one sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from markupsafe import Markup

from db.errors import SideError, StoreError

FILL = """\
make nightly                         # measure this machine's zoo and store it
inductor-watch ingest data/releases  # or read the bundles that came with the checkout"""


def show(title: str, sentence: str, commands: str = "") -> None:
    """A calm box; the commands, if any, below it to copy."""
    box = Markup('<div class="iw iw-state" role="status"><h1>{}</h1>{}</div>')
    st.html(box.format(title, sentence))
    if commands:
        st.code(commands, language=None)  # highlighted words are too faint for some


@contextmanager
def errors_as_states() -> Iterator[None]:
    """Shows an error of a side or of the store as an empty state, in place of what was to be drawn."""
    try:
        yield
    except SideError as error:
        show("There is no such side", f"{error}. Pick another one at the left.")
    except StoreError as error:
        show("The database cannot be shown", f"{error}.", FILL if "no database" in str(error) else "")
