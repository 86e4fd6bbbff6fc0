"""Changing a record from its page, where whoever started the dashboard has allowed it."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import streamlit as st

from dashboard.data import store_address
from db.engine import open_store
from db.errors import RecordError, StoreError
from db.regressions.records import RegressionInfo, change_state, note_regression
from db.regressions.states import following

#: Set to 1 by whoever starts the dashboard for people who may change records.
WRITE_VARIABLE = "INDUCTOR_WATCH_WRITE"
_KEEP = "as it is"


def may_write() -> bool:
    """Whether records may be changed from here; all else that the dashboard does is read-only in any case."""
    return os.environ.get(WRITE_VARIABLE) == "1"


def show(info: RegressionInfo) -> None:
    """The form, or a line that says how to get one."""
    if not may_write():
        st.caption(
            f"Read-only. Change it with inductor-watch regressions, or start the dashboard with {WRITE_VARIABLE}=1."
        )
        return
    with st.form(f"record_{info.regression_id}"):
        columns = st.columns(3)
        state = columns[0].selectbox(
            "State", [_KEEP, *following(info.state)], format_func=lambda name: name.replace("_", " ")
        )
        author = columns[1].text_input("Who says so", max_chars=200)
        owner = columns[2].text_input("Owner", info.owner, max_chars=200)
        link = st.text_input("Link", info.link, max_chars=2000)
        note = st.text_area("Note", max_chars=10_000)
        if st.form_submit_button("Record it"):
            _write(info, state, author, note, owner, link)


def _write(info: RegressionInfo, state: str, author: str, note: str, owner: str, link: str) -> None:
    if not author.strip():
        st.error("Say who you are: a record without an author is worth little.")
        return
    named = {"owner": owner.strip(), "link": link.strip()}
    at = datetime.now(UTC)
    try:
        engine = open_store(store_address(), write=True)
        try:
            if state == _KEEP:
                note_regression(engine, info.regression_id, at=at, author=author.strip(), text=note, **named)
            else:
                change_state(engine, info.regression_id, state, at=at, author=author.strip(), text=note, **named)
        finally:
            engine.dispose()
    except (RecordError, StoreError) as error:
        st.error(str(error).replace("`", "'"))
        return
    st.rerun()
