"""The records of what got worse: which are open, what is known of each, and, where it is allowed, what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup

from analysis.elements import outside_links
from analysis.elements.markup import anchor, joined, lines, mono, paragraph, span, table
from analysis.elements.wording import ABSENT, count, moment, number, signed
from analysis.history.model_runs import runs_of
from analysis.history.regression_record import Listed, OfCommit, Record, by_commit
from collector.metrics import METRICS
from collector.vocabulary import Cell
from dashboard import url
from dashboard.components import sidebar, style, widgets
from dashboard.components.drawing import draw, show_figures, soft
from dashboard.components.widgets import known, known_many, select, select_many, switch, ways
from dashboard.data import Data, store_address
from dashboard.selection import Selection, current
from db.commits.ranges import CommitEntry
from db.engine import open_store
from db.regression_records import OPEN, STATES, RegressionInfo, change_state, following, note_regression
from db.store_errors import RecordError, StoreError


def record_table(caption: str, records: Sequence[Listed], note: str = "") -> Markup:
    """A row a record, in their order."""
    head = ("cell", "state", "metric", "base", "new", "change", "onset", "since", "owner")
    drawn = table(caption, head, [_row(record) for record in records], note=note, numbers=(3, 4, 5, 7))
    return Markup('<div class="iw-list">{}</div>').format(drawn)


def _row(record: Listed) -> list[str]:
    info = record.info
    kept = {key: url.get_all(key) for key in ("closed", "state", "branch", "sort")}
    link = url.link("regressions", record=info.regression_id, **kept)
    return [
        anchor(link, record.name),
        state_tag(info),
        what_changed(info),
        *change_of(info),
        joined("@", [info.branch, outside_links.commit(info.repo, info.onset_commit, ABSENT)]),
        moment(info.onset_at) if info.onset_at else ABSENT,
        info.owner or "nobody",
    ]


def what_changed(info: RegressionInfo) -> str:
    """The kind of the record, and its metric by the name that all pages use."""
    return f"{info.kind}, {METRICS[info.metric].title}" if info.metric in METRICS else info.kind


def state_tag(info: RegressionInfo) -> Markup:
    """The state as a small label."""
    return span("tag fail" if info.state in OPEN else "tag", info.state.replace("_", " "))


def change_of(info: RegressionInfo) -> tuple[str, str, str]:
    """The pinned value, the one that was found, and the change; dashes where a status changed."""
    if info.base_value is None or info.new_value is None:
        return ABSENT, ABSENT, ABSENT
    change = signed(100 * (info.new_value / info.base_value - 1)) if info.base_value > 0 else ABSENT
    return number(info.metric, info.base_value), number(info.metric, info.new_value), change


#: Commits of a blame range that are shown; runs that are drawn before the onset, and from it on.
_COMMITS, _AROUND = 40, 60
#: Set to 1 by whoever starts the dashboard for people who may change records.
WRITE_VARIABLE = "INDUCTOR_WATCH_WRITE"
_KEEP = "as it is"


#: How the list can be sorted. A changed status stands before every change of a value. By onset it is grouped.
_ORDERS: dict[str, Callable[[Listed], Any]] = {
    "onset": lambda one: one.name,
    "change": lambda one: -one.size,
    "cell": lambda one: one.name,
}


def page(selection: Selection) -> None:
    """Draws the page."""
    widgets.title("Regressions")
    with_closed = switch("closed", "Show closed records")
    if name := url.get("record"):
        _one(selection, name)
    records = selection.data.records(with_closed)
    if records:
        _list(records, selection.data.commit_titles())
    else:
        sidebar.show_nothing(
            "No records" if with_closed else "No open records",
            "Records are opened from what the history shows, or from a comparison:",
            "inductor-watch regressions detect\ninductor-watch regressions open BASE NEW",
        )


def _list(records: Sequence[Listed], titles_of_commits: Mapping[str, str]) -> None:
    """Draws the records that the filters leave, in the order that the address asks for."""
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
        draw(record_table(count(len(left), "record"), sorted(left, key=_ORDERS[order]), note))
        return
    counted = " ".join(filter(None, (count(len(left), "record"), note)))
    soft(f"{counted}, by the commit of the onset, the largest change first")
    for group in by_commit(left):
        draw(_of_commit(group, titles_of_commits))


def _of_commit(group: OfCommit, titles: Mapping[str, str]) -> Markup:
    """Return the records of one onset under the commit's title, which leads to its page."""
    sha = group.commit or ""
    words = titles.get(sha) or f"{group.branch}@{sha[: outside_links.SHOWN]}"
    known = anchor(url.link("commit", new=f"{group.branch}@{sha}", base=""), words) if sha in titles else words
    since = f"{moment(group.onset_at)} UTC" if group.onset_at else ""
    head = joined(", ", [known, outside_links.commit(group.repo, group.commit), since])
    return paragraph("", Markup("<b>{}</b>").format(head)) + record_table(group.tally, group.records)


def _one(selection: Selection, name: str) -> None:
    record = selection.data.record(name)
    if record is None:
        sidebar.show_nothing("There is no such record", f"No regression is called {name!r}.")
        return
    st.header(f"Record {record.info.regression_id}", anchor=False)
    draw(_facts(record))
    _chart(selection.data, record)
    draw(_blame(record), _history(record.info))
    if record.repro:
        st.code(record.repro, language=None, wrap_lines=True)
    _form(record.info)


def _facts(record: Record) -> Markup:
    info, cell = record.info, record.cell
    onset = f", {moment(info.onset_at)} UTC" if info.onset_at else ""
    before, after, change = change_of(info)
    compared = "both runs beside each other"
    if cell and info.base_run and info.onset_run:
        sides = {"base": info.base_run, "new": info.onset_run}
        compared = anchor(url.link("model", **sides, **_query(cell)), compared)
    facts = {
        "cell": record.name,
        "state": joined(" ", [state_tag(info), f"set {moment(info.state_since)} UTC"]),
        "change": what_changed(info) + (f": {before} → {after}, {change}" if info.metric else ""),
        "branch": f"{info.branch} of {info.repo}, testbed {info.testbed_id}",
        "base (pinned)": _run(info.repo, info.base_commit, info.base_run),
        "onset": joined("", [_run(info.repo, info.onset_commit, info.onset_run), onset]),
        "runs": compared,
        **({"kernels": lines(*(mono(line) for line in record.kernels))} if record.kernels else {}),
        "owner": info.owner or "nobody",
        "link": outside_links.reference(info.repo, info.link) if info.link else "none",
    }
    return table("Details", ("field", "value"), list(facts.items()))


def _run(repo: str, sha: str | None, run: str | None) -> Markup:
    return joined(", ", [outside_links.commit(repo, sha, "commit not known"), f"run {run or 'dropped'}"])


def _blame(record: Record) -> Markup:
    if record.distance is None:
        return paragraph(
            "",
            (record.unknown or "").replace("`", "")
            or "Blame range not known: a commit of the record is not in the database.",
        )
    if not record.distance:
        return paragraph("", "No commit landed in between: the same code, or a change that is none of the commits'.")
    note = f"{count(record.distance, 'commit')} after the base up to the onset"
    info = record.info
    landed = outside_links.commits(info.repo, info.base_commit, info.onset_commit)
    rows = [_commit(entry) for entry in record.commits[:_COMMITS]]
    head = ("commit", "title", "pull request", "links")
    return table("Blame range", head, rows, note=note) + paragraph("soft", Markup("All commits: ") + landed)


def _commit(entry: CommitEntry) -> list[str]:
    links = {"reverts": entry.reverts, "reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    words = joined(
        ", ",
        (joined(" ", [word, outside_links.commit(entry.repo, sha)]) for word, shas in links.items() for sha in shas),
    )
    pull = outside_links.pull(entry.repo, entry.pr_number, ABSENT)
    return [outside_links.commit(entry.repo, entry.sha), entry.title or "no title", pull, words]


def _history(info: RegressionInfo) -> Markup:
    rows = [
        (
            moment(event.at),
            event.author,
            event.to_state.replace("_", " ") if event.from_state != event.to_state else "note",
            event.text,
        )
        for event in info.events
    ]
    return table("History", ("when (UTC)", "who", "status", "note"), rows)


def _query(cell: Cell) -> dict[str, str]:
    """What the address of the model page has of a cell."""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    return {"model": f"{cell.suite}/{cell.model}", "setting": setting, "config": cell.config.name}


def _chart(data: Data, record: Record) -> None:
    """Draws the metric of the record, or how each run ended, over the runs around the onset."""
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
    runs = runs_of(data.places(), rows, (cell.config.name,), marks, style.colors())
    has_values = info.metric in rows and rows[info.metric].notna().any()
    leading = st.container()
    picked = show_figures([runs.metric(info.metric) if has_values else runs.statuses()])
    if has_values:
        labels = dict(zip(runs.rows["run"].unique(), runs.labels, strict=True))
        ways(leading, picked, labels, partial(url.link, "model", **_query(cell)), "run")


def _form(info: RegressionInfo) -> None:
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


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
