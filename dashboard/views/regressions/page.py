"""The records of what got worse: which are open, what is known of each, and, where it is allowed, what becomes of them."""

from __future__ import annotations

import streamlit as st
from markupsafe import Markup

from analysis.history.record import Record
from dashboard import url
from dashboard.components import code_host, empty_states, heading
from dashboard.components.formats import ABSENT, count, moment
from dashboard.components.markup import anchor, draw, joined, lines, mono, paragraph, table
from dashboard.components.widgets import switch
from dashboard.selection import Selection, current
from dashboard.views.regressions import record_forms
from dashboard.views.regressions.record_rows import change_of, record_table, state_tag
from db.commits.ranges import CommitEntry
from db.regressions.records import RegressionInfo

#: Commits of a blame range that are shown.
_COMMITS = 40


def page(selection: Selection) -> None:
    """Draws the page."""
    heading.title("Regressions")
    with_closed = switch("closed", "Show closed records")
    if name := url.get("record"):
        _one(selection, name)
    records = selection.data.records(with_closed)
    if records:
        draw(record_table(count(len(records), "record"), records))
    else:
        empty_states.show(
            "No records" if with_closed else "No open records",
            "Records are opened from what the history shows, or from a comparison:",
            "inductor-watch regressions detect\ninductor-watch regressions open BASE NEW",
        )


def _one(selection: Selection, name: str) -> None:
    record = selection.data.record(name)
    if record is None:
        empty_states.show("There is no such record", f"No regression is called {name!r}.")
        return
    st.header(f"Record {record.info.regression_id}", anchor=False)
    draw(_facts(record), _blame(record), _history(record.info))
    if record.repro:
        st.code(record.repro, language=None, wrap_lines=True)
    record_forms.show(record.info)


def _facts(record: Record) -> Markup:
    info, cell = record.info, record.cell
    before, after, change = change_of(info)
    sides = {"base": info.base_run or "", "new": info.onset_run or ""}
    compared = "both runs beside each other"
    if cell and all(sides.values()):
        setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
        names = {"model": f"{cell.suite}/{cell.model}", "setting": setting, "config": cell.config.name}
        compared = anchor(url.link("model", **sides, **names), compared)
    facts = {
        "cell": record.name,
        "state": joined(" ", [state_tag(info), f"since {moment(info.state_since)} UTC"]),
        "change": f"{before} → {after}, {change}",
        "branch": f"{info.branch} of {info.repo}, testbed {info.testbed_id}",
        "base (pinned)": _run(info.repo, info.base_commit, info.base_run),
        "onset": _run(info.repo, info.onset_commit, info.onset_run),
        "runs": compared,
        **({"kernels": lines(*(mono(line) for line in record.kernels))} if record.kernels else {}),
        "owner": info.owner or "nobody",
        "link": code_host.reference(info.repo, info.link) if info.link else "none",
    }
    return table("Details", ("field", "value"), list(facts.items()))


def _run(repo: str, sha: str | None, run: str | None) -> Markup:
    return joined(", ", [code_host.commit(repo, sha, "commit not known"), f"run {run or 'dropped'}"])


def _blame(record: Record) -> Markup:
    if record.distance is None:
        return paragraph("", record.unknown or "Blame range not known: a commit of the record is not in the database.")
    if not record.distance:
        return paragraph("", "No commit landed in between: the same code, or a change that is none of the commits'.")
    note = f"{count(record.distance, 'commit')} after the base up to the onset"
    info = record.info
    landed = code_host.commits(info.repo, info.base_commit, info.onset_commit)
    rows = [_commit(entry) for entry in record.commits[:_COMMITS]]
    head = ("commit", "title", "pull request", "links")
    return table("Blame range", head, rows, note=note) + paragraph("soft", Markup("All commits: ") + landed)


def _commit(entry: CommitEntry) -> list[str]:
    links = {"reverts": entry.reverts, "reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    words = joined(
        ", ", (joined(" ", [word, code_host.commit(entry.repo, sha)]) for word, shas in links.items() for sha in shas)
    )
    pull = code_host.pull(entry.repo, entry.pr_number, ABSENT)
    return [code_host.commit(entry.repo, entry.sha), entry.title or "no title", pull, words]


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


page(current())
