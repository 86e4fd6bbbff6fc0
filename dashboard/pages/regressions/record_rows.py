"""Records of regressions as rows of a table, each with the way to its own page."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.history.record import Listed
from dashboard import url
from dashboard.components import code_host
from dashboard.components.formats import ABSENT, moment, number, signed
from dashboard.components.markup import anchor, cell, row, span, table, text
from db.regressions.records import RegressionInfo
from db.regressions.states import OPEN


def record_table(caption: str, records: Sequence[Listed], note: str = "") -> str:
    """A row a record, in their order."""
    head = ("cell", "state", "what", "base", "now", "change", "onset", "since", "owner")
    link, closed = url.linker(), url.get("closed")
    rows = []
    for record in records:
        here = link("regressions", record=record.info.regression_id, closed=closed)
        rows.append(row(anchor(here, text(record.name)), _cells(record.info)))
    return table(caption, head, rows, note=note)


def _cells(info: RegressionInfo) -> list[str]:
    return [
        cell(state_tag(info)),
        cell(text(f"{info.kind}, {info.metric}" if info.metric else info.kind)),
        *(cell(value, "n") for value in change_of(info)),
        cell(f"{text(info.branch)}@{code_host.commit(info.repo, info.onset_commit, ABSENT)}"),
        cell(text(moment(info.state_since)), "n"),
        cell(text(info.owner or "nobody")),
    ]


def state_tag(info: RegressionInfo) -> str:
    """The state as a small label."""
    return span("tag fail" if info.state in OPEN else "tag", text(info.state.replace("_", " ")))


def change_of(info: RegressionInfo) -> tuple[str, str, str]:
    """The pinned value, the one that was found, and the change, as HTML; dashes where a status changed."""
    if info.base_value is None or info.new_value is None:
        return ABSENT, ABSENT, ABSENT
    change = signed(100 * (info.new_value / info.base_value - 1)) if info.base_value > 0 else ABSENT
    return text(number(info.metric, info.base_value)), text(number(info.metric, info.new_value)), text(change)
