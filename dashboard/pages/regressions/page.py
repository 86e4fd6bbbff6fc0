"""The records of what got worse: which are open, what is known of each, and, where it is allowed, what becomes of them."""

from __future__ import annotations

import streamlit as st

from analysis.history.record import Record
from dashboard import url
from dashboard.components import code_host
from dashboard.components import empty_states as states
from dashboard.components.formats import ABSENT, count, moment
from dashboard.components.markup import anchor, block, cell, row, table, text
from dashboard.pages.regressions import record_forms
from dashboard.pages.regressions.record_rows import change_of, record_table, state_tag
from dashboard.selection import Selection, current
from db.commits.ranges import CommitEntry
from db.regressions.records import RegressionInfo

#: Commits of a blame range that are shown.
_COMMITS = 40


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Regressions", anchor=False)
    with_closed = url.get("closed") == "1"
    st.toggle("closed ones too", key=url.bind("closed", with_closed), on_change=_toggled, args=("closed",))
    records = selection.data.records(with_closed)
    if not records:
        states.show(
            "No records" if with_closed else "No open records",
            "Records are opened from what the history shows, or from a comparison:",
            "inductor-watch regressions detect\ninductor-watch regressions open BASE NEW",
        )
    else:
        st.html(block(record_table(count(len(records), "record"), records)))
    if name := url.get("record"):
        _one(selection, name)


def _toggled(key: str) -> None:
    url.put(key, "1" if st.session_state[url.widget(key)] else None)


def _one(selection: Selection, name: str) -> None:
    record = selection.data.record(name)
    if record is None:
        states.show("There is no such record", f"No regression is called {name!r}.")
        return
    info = record.info
    st.header(f"Record {info.regression_id}", anchor=False)
    st.html(block(_facts(record), _blame(record), _history(info)))
    if record.repro:
        st.code(record.repro, language=None, wrap_lines=True)
    record_forms.show(info)


def _facts(record: Record) -> str:
    info = record.info
    before, after, change = change_of(info)
    sides = {"base": info.base_run or "", "new": info.onset_run or ""}
    compared = "both runs beside each other"
    if record.cell and all(sides.values()):
        which = record.cell
        setting = f"{which.phase.value},{which.dtype},{which.device},{which.batch_size}"
        model = url.link(
            "model", **sides, model=f"{which.suite}/{which.model}", setting=setting, config=which.config.name
        )
        compared = anchor(model, text(compared))
    facts = {
        "cell": text(record.name),
        "state": f"{state_tag(info)} since {text(moment(info.state_since))} UTC",
        "change": f"{before} → {after}, {change}",
        "branch": text(f"{info.branch} of {info.repo}, testbed {info.testbed_id}"),
        "base (pinned)": _where(info.repo, info.base_commit, info.base_run),
        "onset": _where(info.repo, info.onset_commit, info.onset_run),
        "runs": compared,
        "owner": text(info.owner or "nobody"),
        "link": code_host.reference(info.repo, info.link) if info.link else "none",
    }
    rows = [row(text(name), [cell(value)]) for name, value in facts.items()]
    return table("What is known", ("fact", "value"), rows)


def _where(repo: str, sha: str | None, run: str | None) -> str:
    return f"{code_host.commit(repo, sha, 'commit not known')}, run {text(run or 'dropped')}"


def _blame(record: Record) -> str:
    if record.distance is None:
        return (
            f"<p>{text(record.unknown or 'Blame range not known: a commit of the record is not in the database.')}</p>"
        )
    if not record.distance:
        return "<p>No commit landed in between: the same code, or a change that is none of the commits'.</p>"
    rows = [_commit(entry) for entry in record.commits[:_COMMITS]]
    note = f"{count(record.distance, 'commit')} after the base up to the onset"
    info = record.info
    landed = code_host.commits(info.repo, info.base_commit, info.onset_commit)
    whole = f'<p class="soft">All of them: {landed}</p>'
    return table("Blame range", ("commit", "title", "pull request", "links"), rows, note=note) + whole


def _commit(entry: CommitEntry) -> str:
    links = {"reverts": entry.reverts, "reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    told = ", ".join(f"{word} {code_host.commit(entry.repo, sha)}" for word, shas in links.items() for sha in shas)
    pull = code_host.pull(entry.repo, entry.pr_number, ABSENT)
    return row(code_host.commit(entry.repo, entry.sha), [cell(text(entry.title or "no title")), cell(pull), cell(told)])


def _history(info: RegressionInfo) -> str:
    rows = [
        row(
            text(moment(event.at)),
            [
                cell(text(event.author)),
                cell(text(event.to_state.replace("_", " ") if event.from_state != event.to_state else "note")),
                cell(text(event.text)),
            ],
        )
        for event in info.events
    ]
    return table("History", ("when (UTC)", "who", "became", "words"), rows)


page(current())
