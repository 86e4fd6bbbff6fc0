"""Records of regressions as text, feed and JSON, and messages by Slack, a webhook of the user's own or e-mail.

A record is due on a channel while it is `new` or `returned` and no message about it was delivered there since it came into that
state. A delivery is a note in the record's own history, so a delivery that fails leaves the record due.

Addresses and passwords come from the environment only. The address of a Slack webhook is a secret, too: an error names the
host and never the path, the user or the server's answer.
"""

from __future__ import annotations

import html
import json
import os
import re
import smtplib
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import click
from sqlalchemy import Connection, Engine

from analysis.compare.adjustment import CONTROL
from analysis.elements.addresses import address
from analysis.history.regression_record import Listed, Record, dimension_of, rank, record_of
from analysis.present import NOTHING, percent, value
from analysis.reports.facts import Report
from analysis.reports.markdown_report import render_page, render_text
from db.commits.commit_history import CommitEntry
from db.regression_records import RegressionInfo, list_regressions, note_regression
from db.store_errors import counted, one_line
from jobs.options import LOOPBACK, check_secret_address, check_token, split_address

#: Commits of a blame range that are printed; `--json` has all.
_PRINTED_COMMITS = 20


def change_of(info: RegressionInfo) -> str:
    """Return the change from the pinned value to the value at the onset, in words.

    A latency's is `measured`: nothing of the machine's part is removed from it.
    """
    if info.base_value is None or info.new_value is None:
        return NOTHING
    change = percent(info.new_value / info.base_value - 1) if info.base_value > 0 else NOTHING
    word = "measured " if info.metric in CONTROL and change != NOTHING else ""
    return f"{value(info.metric, info.base_value)} -> {value(info.metric, info.new_value)}, {word}{change}"


def by_onset(infos: Iterable[RegressionInfo]) -> dict[tuple[str, ...], list[RegressionInfo]]:
    """Group records by the fields that an alert has in common: repository, branch, base and onset; the worst of each first."""
    groups: dict[tuple[str, ...], list[RegressionInfo]] = {}
    for info in infos:
        base, onset = info.base_commit or info.base_run or "", info.onset_commit or info.onset_run or ""
        groups.setdefault((info.repo, info.branch, base, onset), []).append(info)
    return {key: sorted(group, key=rank) for key, group in groups.items()}


def record_text(record: Record) -> str:
    """Return the text that `regressions show` prints."""
    blame = blame_lines(record, _PRINTED_COMMITS)
    return render_text("record.txt.j2", record=record, info=record.info, change=change_of(record.info), blame=blame)


def page_of(record: Record, dashboard: str) -> str:
    """Return the address of the cell's page with both pinned runs; empty without a dashboard, or if a run is gone."""
    cell, info = record.cell, record.info
    if not (dashboard and cell and info.base_run and info.onset_run):
        return ""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    query = {"base": [info.base_run], "new": [info.onset_run], "model": [f"{cell.suite}/{cell.model}"]}
    return address(f"{dashboard.rstrip('/')}/model", {**query, "setting": [setting], "config": [cell.config.name]})


def blame_lines(record: Record, most: int) -> list[str]:
    """Return a line for each commit that can have caused the change, oldest first, or why there is none."""
    if record.distance is None:
        return [record.unknown or "not known: a commit of the record is not in the database"]
    if not record.distance:
        return ["no commit landed in between: the same code, or a change that is none of the commits'"]
    lines = [commit_line(entry) for entry in record.commits[:most]]
    rest = record.distance - len(lines)
    return [*lines, *([f"... and {counted(rest, 'more commit')} in between"] if rest else [])]


def commit_line(entry: CommitEntry) -> str:
    """Return a line with a commit, its title and pull request, and the commits that revert or reland it."""
    marks = "".join(f"  [{word} {shas}]" for word, shas in entry.links.items())
    title = entry.title or "no title"
    pr = f" (#{entry.pr_number})" if entry.pr_number and f"#{entry.pr_number}" not in title else ""
    return f"{entry.sha[:10]}  {title[:120]}{pr}{marks}"


def record_json(record: Record) -> dict[str, Any]:
    """Return an object with stable keys (its moments are `datetime`s): the record, cell, repro, kernels and commits."""
    return {
        **info_json(record.info, record.name),
        "repro": record.repro,
        "kernels": list(record.kernels),
        "blame": {
            "distance": record.distance,
            "unknown": record.unknown,
            "commits": [asdict(entry) for entry in record.commits],
        },
    }


def info_json(info: RegressionInfo, name: str) -> dict[str, Any]:
    """Return an object with the record alone, its history, and the name of the cell."""
    return {**asdict(info), "dimension": dimension_of(info), "cell": name, "is_open": info.is_open}


def atom(records: Sequence[Listed], dashboard: str = "") -> str:
    """Return an Atom feed (RFC 4287) of records, newest change first; with a `dashboard` each entry links to its record."""
    entries: list[dict[str, Any]] = [
        {
            "info": one.info,
            "name": one.name,
            "change": change_of(one.info),
            "updated": max([one.info.opened_at, *(event.at for event in one.info.events)]),
        }
        for one in records
    ]
    entries.sort(key=lambda entry: (entry["updated"], entry["info"].regression_id), reverse=True)
    updated = entries[0]["updated"] if entries else datetime.fromtimestamp(0, UTC)
    return render_page("feed.xml.j2", entries=entries, updated=updated, dashboard=dashboard.rstrip("/"))


#: States of records that no person has answered yet.
_UNANSWERED = ("new", "returned")
#: The most records that a message shows; the JSON document has all.
_ROWS = 20
_COMMITS = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """One message: `title` is a line, `text` the whole message, `document` its content for programs."""

    title: str
    text: str
    document: dict[str, Any]
    records: tuple[RegressionInfo, ...]


def due(conn: Connection, channel: str, branch: str | None = None) -> list[RegressionInfo]:
    """Return the records that are due on a channel, the record that was opened last first."""
    records = list_regressions(conn, open_only=True, branch=branch)
    return [record for record in records if record.state in _UNANSWERED and not _is_told(record, channel)]


def _is_told(record: RegressionInfo, channel: str) -> bool:
    for event in reversed(record.events):
        if event.from_state != event.to_state:
            return False  # the step into its state: earlier messages were about an earlier state
        if event.text == _told(channel):
            return True
    return False


def _told(channel: str) -> str:
    return f"told by {channel}"


def remember(engine: Engine, notice: Notice, channel: str, *, at: datetime, author: str) -> None:
    """Note in the history of each record that a message about it was delivered on a channel."""
    with engine.begin() as conn:
        for record in notice.records:
            note_regression(conn, record.regression_id, at=at, author=author, text=_told(channel))


def notice_of(
    conn: Connection, infos: Sequence[RegressionInfo], first: Report | None = None, dashboard: str = ""
) -> Notice:
    """Return the message about some records; it begins with the sentence and the link of the report `first`, if any."""
    branches = {info.branch for info in infos}
    where = f" on {next(iter(branches))}" if len(branches) == 1 else ""
    title = one_line(counted(len(infos), "new regression") + where, 200)
    records = {info.regression_id: record_of(conn, info) for info in infos}
    shown = [info.regression_id for group in by_onset(infos).values() for info in group][:_ROWS]
    told = [info for info in infos if info.regression_id in shown]
    alerts = [[records[info.regression_id] for info in group] for group in by_onset(told).values()]
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
        more=len(infos) - len(shown),
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


SLACK, WEBHOOK, TOKEN = "INDUCTOR_WATCH_SLACK_URL", "INDUCTOR_WATCH_WEBHOOK_URL", "INDUCTOR_WATCH_WEBHOOK_TOKEN"
SMTP, SENDER, RECEIVERS = "INDUCTOR_WATCH_SMTP_URL", "INDUCTOR_WATCH_MAIL_FROM", "INDUCTOR_WATCH_MAIL_TO"
_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"[^@\s<>,\"]+@[^@\s<>,\"]+")


class NotDeliveredError(click.ClickException):
    """An error for a message that a channel did not take: one line without secrets, and the exit code of a failed environment."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Webhook:
    """A channel that posts JSON to an address; with `is_slack` as Slack's incoming webhooks take it, and Mattermost's, too."""

    name: str
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    is_slack: bool = False

    def send(self, notice: Notice) -> None:
        """Deliver a message without following redirects. Raises `NotDeliveredError`."""
        import httpx

        # Slack reads <, > and & as markup, with which a name could notify everybody.
        said: dict[str, Any] = {"text": html.escape(notice.text, quote=False), "mrkdwn": False}
        headers = {"User-Agent": "inductor-watch"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        host = urlsplit(self.url).hostname
        try:
            response = httpx.post(
                self.url,
                json=said if self.is_slack else notice.document,
                headers=headers,
                timeout=_TIMEOUT_S,
                trust_env=host not in LOOPBACK,
            )
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
            raise NotDeliveredError(f"{host} does not answer ({type(error).__name__})") from None
        if not response.is_success:
            raise NotDeliveredError(f"{host} answered {response.status_code}")


@dataclass(frozen=True, slots=True)
class Mail:
    """A channel by e-mail: `smtps` is encrypted from the first byte, `smtp` uses STARTTLS if the server offers it."""

    server: SplitResult = field(repr=False)
    sender: str
    receivers: tuple[str, ...]
    name: str = "e-mail"

    def send(self, notice: Notice) -> None:
        """Deliver a message; it is delivered if the server takes it for some receivers. Raises `NotDeliveredError`."""
        host = self.server.hostname
        try:
            with self._connected() as smtp:
                smtp.send_message(self._message(notice))
        except smtplib.SMTPResponseException as error:
            raise NotDeliveredError(f"{host} answered {error.smtp_code} ({type(error).__name__})") from None
        except (smtplib.SMTPException, OSError, ValueError) as error:
            raise NotDeliveredError(f"{host} does not take it ({type(error).__name__})") from None

    def _connected(self) -> smtplib.SMTP:
        host, port, tls = self.server.hostname or "", self.server.port or 0, ssl.create_default_context()
        if self.server.scheme == "smtps":
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_S, context=tls)
        else:
            smtp = smtplib.SMTP(host, port or 587, timeout=_TIMEOUT_S)
        try:
            smtp.ehlo_or_helo_if_needed()
            if self.server.scheme == "smtp" and smtp.has_extn("starttls"):
                smtp.starttls(context=tls)
                smtp.ehlo()
            elif self.server.scheme == "smtp" and self.server.password:
                raise NotDeliveredError(f"{host} offers no STARTTLS, and a password is not sent without: use smtps://")
            if self.server.username and self.server.password:
                smtp.login(unquote(self.server.username), unquote(self.server.password))
        except BaseException:
            smtp.close()
            raise
        return smtp

    def _message(self, notice: Notice) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"] = self.sender, ", ".join(self.receivers)
        message["Subject"] = f"inductor-watch: {notice.title}"
        message.set_content(notice.text)
        return message


#: A channel that takes messages; records store its `name`.
Channel = Webhook | Mail


def tell_channels(
    engine: Engine,
    channels: Sequence[Channel],
    first: Report | None,
    *,
    branch: str | None,
    dashboard: str,
    at: datetime,
    author: str,
) -> Iterator[tuple[str, bool]]:
    """Send each channel a message about its due records. Yield a line for each channel, and whether delivery succeeded."""
    for channel in channels:
        with engine.connect() as conn:
            records = due(conn, channel.name, branch)
            notice = notice_of(conn, records, first, dashboard) if records else None
        if notice is None:
            yield f"{channel.name}: nothing new", True
            continue
        try:
            channel.send(notice)
        except NotDeliveredError as error:
            yield f"{channel.name}: {error.message}: not delivered, the next call tells it", False
            continue
        remember(engine, notice, channel.name, at=at, author=author)
        yield f"{channel.name}: {notice.title}", True


def channels_of(environ: Mapping[str, str] = os.environ) -> list[Channel]:
    """Return the channels that the environment names, maybe none. Raises `click.UsageError`, whose text has no values."""
    given = {name: environ.get(name, "").strip() for name in (SLACK, WEBHOOK, TOKEN, SMTP, SENDER, RECEIVERS)}
    channels: list[Channel] = []
    if given[SLACK]:
        channels.append(Webhook("slack", check_secret_address(SLACK, given[SLACK]), is_slack=True))
    if given[WEBHOOK]:
        token = check_token(TOKEN, given[TOKEN])
        channels.append(Webhook("webhook", check_secret_address(WEBHOOK, given[WEBHOOK]), token))
    if given[SMTP]:
        channels.append(_mail(given[SMTP], given[SENDER], given[RECEIVERS]))
    return channels


def _mail(server: str, sender: str, receivers: str) -> Mail:
    parts = split_address(SMTP, server)
    if parts.scheme not in ("smtp", "smtps"):
        raise click.UsageError(f"{SMTP} must be smtp://[USER:PASSWORD@]HOST[:PORT], or smtps://")
    to = tuple(address.strip() for address in receivers.split(",") if address.strip())
    for variable, addresses in {SENDER: (sender,), RECEIVERS: to or ("",)}.items():
        if not all(_ADDRESS.fullmatch(address) for address in addresses):
            raise click.UsageError(f"{variable} must hold e-mail addresses such as ann@example.org for {SMTP}")
    return Mail(parts, sender, to)
