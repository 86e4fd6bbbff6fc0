"""An issue for each alert: all records of one onset; opened once, brought up to date, closed when its last record is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from analysis.history.regression_record import record_of
from analysis.reports.markdown_report import BODY_BYTES, cut, render
from collector.vocabulary import short_hash
from db.regression_records import RegressionInfo, list_regressions, note_regression
from jobs.github.api import GitHub, has_body, page_of
from jobs.output.terminal import one_line
from jobs.regressions.text import blame_lines, by_onset, change_of
from jobs.regressions.text import page_of as page_of_record

#: Issues are looked for by it.
LABEL = "inductor-watch"
_ROWS = 100
_COMMITS = 50
_TITLE = 200


@dataclass(frozen=True, slots=True)
class Issue:
    """An alert as an issue. `marker` is the first line of the body, which GitHub does not show."""

    marker: str
    title: str
    body: str
    records: tuple[RegressionInfo, ...]

    @property
    def is_open(self) -> bool:
        """Whether a record of it is open."""
        return any(record.is_open for record in self.records)


def issues_of(conn: Connection, branch: str | None = None, dashboard: str = "") -> list[Issue]:
    """An issue for the records of each repository, branch, base and onset commit, newest alert first."""
    groups = by_onset(list_regressions(conn, branch=branch))
    return [_issue(conn, key, infos, dashboard) for key, infos in groups.items()]


def publish_issues(
    engine: Engine, github: GitHub, repo: str, issues: Sequence[Issue], *, at: datetime, author: str
) -> Iterator[tuple[str, str]]:
    """Writes the issues into a repository, one by one, and remembers each one's address in its records at once.

    Yields what was done (`opened`, `updated`, `closed`, `reopened` or `unchanged`) and the address.

    An issue is known by its label and the marker that its body begins with. Alerts of which all records are closed get no
    new issue. An issue that a person closed stays closed, unless something that was fixed returned. A link that a record has
    keeps.

    Raises:
        GitHubError: GitHub refused or did not answer; what was written before is remembered.
    """
    known = _labelled(github, repo)
    for issue in issues:
        existing = known.get(issue.marker)
        if existing is None and not issue.is_open:
            continue
        if existing is None:
            wanted = {"title": issue.title, "body": issue.body, "labels": [LABEL]}
            done = "opened", github.create(f"repos/{repo}/issues", wanted)
        else:
            done = _updated(github, repo, issue, existing)
        with engine.begin() as conn:
            for record in issue.records:
                if not record.link:
                    note_regression(conn, record.regression_id, at=at, author=author, link=done[1])
        yield done


def _issue(conn: Connection, key: tuple[str, ...], infos: Sequence[RegressionInfo], dashboard: str) -> Issue:
    marker = f"<!-- inductor-watch alert {short_hash(list(key))} -->"
    repo, branch, _, onset = key
    records = [record_of(conn, info) for info in infos[:_ROWS]]
    still = [record for record in records if record.info.is_open] or records
    worst = max(still, key=lambda record: _growth(record.info))
    rest = f" and {len(infos) - 1} more" if len(infos) > 1 else ""
    title = f"{branch} at {onset[:10]}: {worst.info.kind}, {worst.name}{rest}"
    first = records[0].info
    text = render(
        "issue.md.j2",
        where=f"{branch} of {repo}",
        base=(first.base_commit or "not known")[:12],
        onset=(first.onset_commit or "not known")[:12],
        records=[(record, change_of(record.info), page_of_record(record, dashboard)) for record in records],
        count=len(infos),
        worst=worst.name,
        kernels=worst.kernels,
        blame=blame_lines(records[0], _COMMITS),
        commands=list(dict.fromkeys(record.repro for record in records if record.repro))[:_COMMITS],
    )
    body = f"{marker}\n{cut(text, BODY_BYTES - len(marker) - 1)}"
    # Titles are no Markdown, and yet call people who are named in them.
    return Issue(marker, one_line(title, _TITLE).replace("@", "@\u200b"), body, tuple(infos))


def _growth(info: RegressionInfo) -> float:
    """What broke is worse than any change."""
    if not info.base_value or info.new_value is None:
        return float("inf")
    return info.new_value / info.base_value


def _labelled(github: GitHub, repo: str) -> dict[str, dict[str, Any]]:
    """Our issues by their marker; of several with one marker the oldest."""
    by_marker: dict[str, dict[str, Any]] = {}
    for issue in github.pages(f"repos/{repo}/issues", state="all", labels=LABEL, direction="asc"):
        if "pull_request" not in issue:
            by_marker.setdefault(str(issue.get("body") or "").partition("\n")[0].strip(), issue)
    return by_marker


def _updated(github: GitHub, repo: str, issue: Issue, existing: Mapping[str, Any]) -> tuple[str, str]:
    is_open = existing.get("state") != "closed"
    changes: dict[str, Any] = {} if has_body(existing, issue.body) else {"body": issue.body}
    if str(existing.get("title")) != issue.title:
        changes["title"] = issue.title
    word = "updated" if changes else "unchanged"
    if is_open and not issue.is_open:
        changes["state"], word = "closed", "closed"
    elif not is_open and any(record.state == "returned" for record in issue.records):
        changes["state"], word = "open", "reopened"
    return word, github.patch(f"repos/{repo}/issues/{existing['number']}", changes) if changes else page_of(existing)
