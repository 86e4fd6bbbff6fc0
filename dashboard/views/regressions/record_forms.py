"""Changing a record from its page, where whoever started the dashboard has allowed it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard.data import store_address
from db.engine import open_store
from db.errors import RecordError, StoreError
from db.regressions.records import RegressionInfo, change_state, following, note_regression

#: Set to 1 by whoever starts the dashboard for people who may change records.
WRITE_VARIABLE = "INDUCTOR_WATCH_WRITE"
_KEEP = "as it is"


def show(info: RegressionInfo) -> None:
    """The form, or a line that says how to get one."""
    if os.environ.get(WRITE_VARIABLE) != "1":
        st.caption(
            f"Read-only. Change it with inductor-watch regressions, or start the dashboard with {WRITE_VARIABLE}=1."
        )
        return
    with st.form(f"record_{info.regression_id}"):
        columns = st.columns(3)
        options = [_KEEP, *following(info.state)]
        state = columns[0].selectbox("State", options, format_func=lambda name: name.replace("_", " "))
        author = columns[1].text_input("Your name", max_chars=200).strip()
        owner = columns[2].text_input("Owner", info.owner, max_chars=200).strip()
        link = st.text_input("Link", info.link, max_chars=2000).strip()
        note = st.text_area("Note", max_chars=10_000)
        is_sent = st.form_submit_button("Save")
    if is_sent and not author:
        st.error("Say who you are: a record without an author is worth little.")
    elif is_sent:
        said = {"at": datetime.now(UTC), "author": author, "text": note, "owner": owner, "link": link}
        _write(info, state, said)


def _write(info: RegressionInfo, state: str, said: dict[str, Any]) -> None:
    try:
        engine = open_store(store_address(), write=True)
        try:
            if state == _KEEP:
                note_regression(engine, info.regression_id, **said)
            else:
                change_state(engine, info.regression_id, state, **said)
        finally:
            engine.dispose()
    except (RecordError, StoreError) as error:
        st.error(str(error).replace("`", "'"))
        return
    st.rerun()
