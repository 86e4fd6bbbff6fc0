"""Messages about regressions that nobody has been told of: which records, what is said, and that it was said.

A record is due on a channel while it is `new` or `returned` and has not been told there since it came into that state. The
record's own history remembers it, as a note; so a delivery that fails leaves the record due.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from analysis.history.regression_record import record_of
from analysis.reports.facts import Report
from analysis.reports.markdown_report import render_text
from db.regression_records import RegressionInfo, list_regressions, note_regression
from db.store_errors import counted, one_line
from jobs.regressions.text import blame_lines, by_onset, change_of, info_json, page_of

#: States that a person has not answered yet.
_UNANSWERED = ("new", "returned")
#: Records that a message shows; the JSON document has all.
_ROWS = 20
_COMMITS = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """One message: `title` is a line, `text` the whole message, `document` the same for programs."""

    title: str
    text: str
    document: dict[str, Any]
    records: tuple[RegressionInfo, ...]


def due(conn: Connection, channel: str, branch: str | None = None) -> list[RegressionInfo]:
    """The records that were not told on a channel, the one that was opened last first."""
    records = list_regressions(conn, open_only=True, branch=branch)
    return [record for record in records if record.state in _UNANSWERED and not _is_told(record, channel)]


def _is_told(record: RegressionInfo, channel: str) -> bool:
    for event in reversed(record.events):
        if event.from_state != event.to_state:
            return False  # the step into its state: what was told before was about another one
        if event.text == _told(channel):
            return True
    return False


def _told(channel: str) -> str:
    return f"told by {channel}"


def remember(engine: Engine, notice: Notice, channel: str, *, at: datetime, author: str) -> None:
    """Notes in the history of each record that it was told on a channel."""
    with engine.begin() as conn:
        for record in notice.records:
            note_regression(conn, record.regression_id, at=at, author=author, text=_told(channel))


def notice_of(
    conn: Connection, infos: Sequence[RegressionInfo], first: Report | None = None, dashboard: str = ""
) -> Notice:
    """The message about some records; it begins with the sentence and the link of the report `first`."""
    branches = {info.branch for info in infos}
    where = f" on {next(iter(branches))}" if len(branches) == 1 else ""
    title = one_line(counted(len(infos), "new regression") + where, 200)
    records = {info.regression_id: record_of(conn, info) for info in infos}
    alerts = [[records[info.regression_id] for info in group] for group in by_onset(infos[:_ROWS]).values()]
    text = render_text(
        "notice.txt.j2",
        title=title,
        first=first,
        alerts=[
            (
                [(one, change_of(one.info), page_of(one, dashboard)) for one in alert],
                blame_lines(alert[0], _COMMITS),
            )
            for alert in alerts
        ],
        more=len(infos) - len(infos[:_ROWS]),
    )
    document: dict[str, Any] = {
        "source": "inductor-watch",
        "title": title,
        "text": text,
        "report": {"sentence": first.sentence, "link": first.link} if first else None,
        "regressions": [
            {**info_json(one.info, one.name), "change": change_of(one.info), "page": page_of(one, dashboard)}
            for one in records.values()
        ],
    }
    plain = json.loads(json.dumps(document, default=datetime.isoformat))
    return Notice(title, text, plain, tuple(infos))
