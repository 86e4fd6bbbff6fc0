"""GitHub by its REST API: one comment on a pull request, one issue for an alert. One retry, one line for every error.

The token comes from the environment, goes to the API's own address only, and is part of no message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click
import httpx
from sqlalchemy import Connection, Engine

from analysis.history.regression_record import record_of
from analysis.reports.markdown_report import BODY_BYTES, cut, render
from collector.vocabulary import short_hash
from db.regression_records import RegressionInfo, list_regressions, note_regression
from jobs.options import LOOPBACK, check_secret_address, check_token
from jobs.output.terminal import one_line
from jobs.regressions.notices import blame_lines, by_onset, change_of
from jobs.regressions.notices import page_of as page_of_record

#: Environment variables that GitHub Actions sets; elsewhere a user sets them.
TOKEN_VARIABLE, URL_VARIABLE = "GITHUB_TOKEN", "GITHUB_API_URL"
DEFAULT_URL = "https://api.github.com"
#: The longest wait for the end of a rate limit, in seconds.
_PATIENCE_S = 60.0
_RIGHT = f"is {URL_VARIABLE} right?"
_ADVICE = {
    301: ": it has moved; if the repository was renamed, say its new name",
    401: f": {TOKEN_VARIABLE} is not valid there",
    403: f": {TOKEN_VARIABLE} may not do this; it needs to write issues and pull requests",
    404: f": there is no such thing, or {TOKEN_VARIABLE} may not see it",
}


class GitHubError(click.ClickException):
    """An error for GitHub when it refused or did not answer, in one line. The exit code is that of a failed environment."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class GitHub:
    """The API at an address. `wait` sleeps for a number of seconds before the one retry. All methods raise `GitHubError`."""

    token: str = field(repr=False)
    base: str = DEFAULT_URL
    timeout_s: float = 30.0
    wait: Callable[[float], None] = time.sleep

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> GitHub:
        """Return the API that the environment names, with its token.

        Raises:
            click.UsageError: no token or one that cannot be one, or an address that a token must not be sent to.
        """
        token = environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise click.UsageError(
                f"{TOKEN_VARIABLE} is not set: set it to a token that may write issues and pull requests"
            )
        base = environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        return cls(check_token(TOKEN_VARIABLE, token), check_secret_address(URL_VARIABLE, base).rstrip("/"))

    def pages(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, requested page by page."""
        url = httpx.URL(f"{self.base}/{path}", params={**query, "per_page": 100})
        while True:
            response = self._send("GET", url)
            items = _parsed(response)
            if not isinstance(items, list):
                raise GitHubError(f"GitHub answered GET {path} with something that is no list: {_RIGHT}")
            yield from (item for item in items if isinstance(item, dict))
            following = response.links.get("next", {}).get("url")
            if not following:
                return
            url = url.join(following)
            if (url.scheme, url.netloc) != (response.url.scheme, response.url.netloc):
                raise GitHubError("GitHub's answer leads to another host: the token does not go there")

    def patch(self, path: str, body: Mapping[str, Any]) -> str:
        """Change a comment or an issue, and return its address."""
        return page_of(_parsed(self._send("PATCH", httpx.URL(f"{self.base}/{path}"), body)))

    def create(self, path: str, body: Mapping[str, Any]) -> str:
        """Create a comment or an issue, and return its address. If the answer is lost, it may have been created all the same."""
        return page_of(_parsed(self._send("POST", httpx.URL(f"{self.base}/{path}"), body)))

    def _send(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send a request and return the answer. Try once more if that may help, unless it could create something twice.

        Redirects are not followed: they would carry the token along.
        """
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "inductor-watch",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        for tried_twice in (False, True):
            try:
                # A server on this host needs no proxy; for all others the proxies of the environment count.
                with_proxy = url.host not in LOOPBACK
                response = httpx.request(
                    method, url, json=body, headers=headers, timeout=self.timeout_s, trust_env=with_proxy
                )
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
                problem = f"does not answer {method} {url.path}: {error or type(error).__name__}"
                delay_s: float | None = None if method == "POST" else 1.0
            else:
                if response.is_success:
                    return response
                code = response.status_code
                problem = f"answered {method} {url.path} with {code} ({_message(response)}){_ADVICE.get(code, '')}"
                delay_s = _delay_s(response, method)
            if tried_twice or delay_s is None or delay_s > _PATIENCE_S:
                text = f"GitHub at {url.netloc.decode()} {problem}{' (tried twice)' * tried_twice}"
                raise GitHubError(one_line(text.replace(self.token, "***"), 500)) from None  # a server may repeat it
            self.wait(delay_s)
        raise AssertionError("two tries end in an answer or an error")


def check_repo(text: str) -> str:
    """Return `text` if it is `OWNER/REPO` as GitHub spells it. Raises `click.UsageError` for any other text."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.{1,2}$)[A-Za-z0-9._-]+", text):
        raise click.UsageError(f"{one_line(text, 80)!r} is no repository: write OWNER/REPO")
    return text


def check_pull(text: str) -> tuple[str, int]:
    """Return the repository and the number of `OWNER/REPO#N`. Raises `click.UsageError` for any other text."""
    repo, _, number = text.partition("#")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise click.UsageError(f"{one_line(text, 80)!r} is no pull request: write OWNER/REPO#NUMBER")
    return check_repo(repo), int(number)


def page_of(item: Any) -> str:
    """Return the address at which people see a comment or an issue. Raises `GitHubError` if it has none."""
    url = item.get("html_url") if isinstance(item, dict) else None
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise GitHubError(f"GitHub's answer has no html_url: {_RIGHT}")
    return url


def has_body(item: Mapping[str, Any], body: str) -> bool:
    """Return whether a comment or an issue has this text already; GitHub returns line ends as a browser sends them."""
    return str(item.get("body")).replace("\r\n", "\n").strip() == body.strip()


def _delay_s(response: httpx.Response, method: str) -> float | None:
    """Return the seconds after which a refused request may pass; None if it will not pass, or may have taken effect."""
    code, headers = response.status_code, response.headers
    if code == 429 or (code == 403 and (headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers)):
        after, reset = (headers.get(name, "") for name in ("retry-after", "x-ratelimit-reset"))
        return float(after) if after.isdecimal() else max(1.0, float(reset) - time.time()) if reset.isdecimal() else 1.0
    return 1.0 if code == 503 or (code >= 500 and method != "POST") else None


def _parsed(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        what = f"{response.request.method} {response.url.path}"
        raise GitHubError(f"GitHub's answer to {what} is no JSON: {_RIGHT}") from None


def _message(response: httpx.Response) -> str:
    try:
        return " ".join(str(response.json()["message"]).split())
    except (ValueError, RecursionError, KeyError, TypeError):
        return "no message"


#: The first line of our comment: an HTML comment, which GitHub does not show.
MARKER = "<!-- inductor-watch report -->"


def put_comment(github: GitHub, repo: str, number: int, text: str) -> tuple[str, str]:
    """Write the text into our comment on a pull request or issue; return what was done and the comment's address.

    The first result is `updated`, `unchanged` or `created`. Only a comment that **begins** with the marker is ours: a comment
    that quotes the marker is not.

    Raises:
        GitHubError: GitHub refused or did not answer.
    """
    body = f"{MARKER}\n{text}"
    comments = f"repos/{repo}/issues/{number}/comments"
    ours = (item for item in github.pages(comments) if str(item.get("body") or "").startswith(MARKER))
    existing = next(ours, None)
    if existing is None:
        return "created", github.create(comments, {"body": body})
    if has_body(existing, body):
        return "unchanged", page_of(existing)
    return "updated", github.patch(f"repos/{repo}/issues/comments/{existing['id']}", {"body": body})


#: The label by which our issues are found.
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
        """Return whether any record of the issue is open."""
        return any(record.is_open for record in self.records)


def issues_of(conn: Connection, branch: str | None = None, dashboard: str = "") -> list[Issue]:
    """Return an issue for the records of each repository, branch, base and onset commit, newest alert first."""
    groups = by_onset(list_regressions(conn, branch=branch))
    return [_issue(conn, key, infos, dashboard) for key, infos in groups.items()]


def publish_issues(
    engine: Engine, github: GitHub, repo: str, issues: Sequence[Issue], *, at: datetime, author: str
) -> Iterator[tuple[str, str]]:
    """Write the issues into a repository, one by one, and store each issue's address in its records at once.

    Yields what was done (`opened`, `updated`, `closed`, `reopened` or `unchanged`) and the address.

    An issue is identified by its label and the marker that its body begins with. Alerts whose records are all closed get no new
    issue. An issue that a person closed stays closed, unless a regression that was fixed returned. A record that has a link
    keeps it.

    Raises:
        GitHubError: GitHub refused or did not answer; the addresses of issues written before are stored.
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
    # A title is no Markdown, and yet GitHub notifies people who are named in it with an @.
    return Issue(marker, one_line(title, _TITLE).replace("@", "@\u200b"), body, tuple(infos))


def _growth(info: RegressionInfo) -> float:
    """Return the ratio of the new value to the base value; infinity for a cell that broke, which is worse than any change."""
    if not info.base_value or info.new_value is None:
        return float("inf")
    return info.new_value / info.base_value


def _labelled(github: GitHub, repo: str) -> dict[str, dict[str, Any]]:
    """Return our issues by their marker; of several issues with one marker, the oldest."""
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
