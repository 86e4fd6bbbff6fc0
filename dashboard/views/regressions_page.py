"""The page of the records of regressions: the open ones, the facts of each, and, where it is allowed, a form to change them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st

from analysis.elements.listings import (
    blame_table,
    commit_records,
    history_table,
    model_query,
    record_facts,
    record_table,
)
from analysis.elements.wording import count
from analysis.history.over_commits import runs_of
from analysis.history.regression_record import Listed, Record, by_commit
from dashboard import url, widgets
from dashboard.data import Data, store_address
from dashboard.url import Selection, current
from dashboard.widgets import draw, known, known_many, select, select_many, show_figures, soft, switch, ways
from db.engine import open_store
from db.regression_records import STATES, RegressionInfo, change_state, following, note_regression
from db.store_errors import RecordError, StoreError

#: Runs that are drawn before the onset, and from it on.
_AROUND = 60
#: A variable that the person who starts the dashboard sets to 1, for people who may change records.
WRITE_VARIABLE = "INDUCTOR_WATCH_WRITE"
_KEEP = "as it is"


#: Orders of the list. A changed status stands before every change of a value. By onset the list is grouped.
_ORDERS: dict[str, Callable[[Listed], Any]] = {
    "onset": lambda one: one.name,
    "change": lambda one: -one.size,
    "cell": lambda one: one.name,
}


def page(selection: Selection) -> None:
    """Draw the page."""
    widgets.title("Regressions")
    with_closed = switch("closed", "Show closed records")
    if name := url.get("record"):
        _one(selection, name)
    records = selection.data.records(with_closed)
    if records:
        _list(records, selection.data.commit_titles())
    else:
        widgets.show_nothing(
            "No records" if with_closed else "No open records",
            "Records are opened from what the history shows, or from a comparison:",
            "inductor-watch regressions detect\ninductor-watch regressions open BASE NEW",
        )


def _list(records: Sequence[Listed], titles_of_commits: Mapping[str, str]) -> None:
    """Draw the records that the filters leave, in the order that the address asks for."""
    columns = st.columns(3)
    states = [state for state in STATES if any(one.info.state == state for one in records)]
    branches = sorted({one.info.branch for one in records})
    of_states, of_branches = known_many("state", states), known_many("branch", branches)
    order = known("sort", _ORDERS, "onset")
    names = {state: state.replace("_", " ") for state in states}
    select_many("state", "State", states, of_states, names=names, where=columns[0])
    select_many("branch", "Branch", branches, of_branches, where=columns[1])
    titles = {"onset": "newest onset", "change": "largest change", "cell": "cell"}
    select("sort", "Sort by", list(_ORDERS), order, default="onset", names=titles, where=columns[2])
    left = [
        one
        for one in records
        if one.info.state in (of_states or states) and one.info.branch in (of_branches or branches)
    ]
    note = f"of {len(records)}" if len(left) < len(records) else ""
    if order != "onset":
        draw(record_table(count(len(left), "record"), sorted(left, key=_ORDERS[order]), _link, note))
        return
    counted = " ".join(filter(None, (count(len(left), "record"), note)))
    soft(f"{counted}, by the commit of the onset, the largest change first")
    for group in by_commit(left):
        draw(commit_records(group, titles_of_commits, _link))


def _link(page: str, **changes: url.Value) -> str:
    """Return an address that keeps the filters and the order of the list."""
    kept = {key: url.get_all(key) for key in ("closed", "state", "branch", "sort")} if page == "regressions" else {}
    return url.link(page, **kept, **changes)


def _one(selection: Selection, name: str) -> None:
    record = selection.data.record(name)
    if record is None:
        widgets.show_nothing("There is no such record", f"No regression is called {name!r}.")
        return
    st.header(f"Record {record.info.regression_id}", anchor=False)
    draw(record_facts(record, url.link))
    _chart(selection.data, record)
    draw(blame_table(record), history_table(record.info))
    if record.repro:
        st.code(record.repro, language=None, wrap_lines=True)
    _form(record.info)


def _chart(data: Data, record: Record) -> None:
    """Draw the metric of the record, or how each run ended, over the runs around the onset."""
    info, cell = record.info, record.cell
    if cell is None:
        return
    rows = data.history(cell.suite, cell.model)
    of_record = {"cell_id": info.cell_id, "testbed_id": info.testbed_id, "branch": info.branch}
    for column, value in of_record.items():
        rows = rows[rows[column] == value]
    rows = rows.drop_duplicates("run_id", keep="last").sort_values(["started_at", "run_id"], ignore_index=True)
    onset = next(iter(rows.index[rows["run_id"] == info.onset_run]), len(rows))
    rows = rows.iloc[max(0, onset - _AROUND) : onset + _AROUND]
    if len(rows) < 2:
        return
    marks = {"base": [info.base_run or ""], "onset": [info.onset_run or ""]}
    runs = runs_of(data.places(), rows, (cell.config.name,), marks, widgets.colors())
    has_values = info.metric in rows and rows[info.metric].notna().any()
    leading = st.container()
    picked = show_figures([runs.metric(info.metric) if has_values else runs.statuses()])
    if has_values:
        labels = dict(zip(runs.rows["run"].unique(), runs.labels, strict=True))
        ways(leading, picked, labels, partial(url.link, "model", **model_query(cell)), "run")


def _form(info: RegressionInfo) -> None:
    """Draw the form, or a line that says how to get one."""
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


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
