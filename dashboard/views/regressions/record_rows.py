"""Records of regressions as rows of a table, each with the way to its own page."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from analysis.history.record import Listed
from collector.metrics import METRICS
from dashboard import url
from dashboard.components import code_host
from dashboard.components.formats import ABSENT, moment, number, signed
from dashboard.components.markup import anchor, joined, span, table
from db.regressions.records import OPEN, RegressionInfo


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
        joined("@", [info.branch, code_host.commit(info.repo, info.onset_commit, ABSENT)]),
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
