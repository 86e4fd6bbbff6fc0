"""GitHub's REST API for comments and issues: one retry, one line for every error.

The token comes from the environment, goes to the API's own address only, and is part of no message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
import httpx

from jobs.output.terminal import one_line

#: GitHub Actions sets both; elsewhere a person does.
TOKEN_VARIABLE, URL_VARIABLE = "GITHUB_TOKEN", "GITHUB_API_URL"
DEFAULT_URL = "https://api.github.com"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Seconds: a rate limit that ends later is not waited for.
_PATIENCE_S = 60.0
_PAGES = 100
_RIGHT = f"is {URL_VARIABLE} right?"
_ADVICE = {
    401: f": {TOKEN_VARIABLE} is not valid there",
    403: f": {TOKEN_VARIABLE} may not do this; it needs to write issues and pull requests",
    404: f": there is no such thing, or {TOKEN_VARIABLE} may not see it",
}


class GitHubError(click.ClickException):
    """GitHub did not answer or refused: one line. The exit code is that of a failed environment.

    It may pass after `retry_s` seconds, unless that is None. `is_lost`: the request may have been done all the same.
    """

    exit_code = 4

    def __init__(self, text: str, retry_s: float | None = None, *, is_lost: bool = False) -> None:
        super().__init__(text)
        self.retry_s, self.is_lost = retry_s, is_lost


@dataclass(frozen=True, slots=True)
class GitHub:
    """The API at an address. `wait` sleeps for so many seconds before the one retry."""

    token: str = field(repr=False)
    base: str = DEFAULT_URL
    timeout_s: float = 30.0
    wait: Callable[[float], None] = time.sleep

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> GitHub:
        """The API that the environment names, with its token.

        Raises:
            click.UsageError: no token or one that cannot be one, or an address that a token must not be sent to.
        """
        token = environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise click.UsageError(
                f"{TOKEN_VARIABLE} is not set: set it to a token that may write issues and pull requests"
            )
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise click.UsageError(f"{TOKEN_VARIABLE} holds characters that no token has: copy it again")
        base = environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        try:
            url = httpx.URL(base)
        except httpx.InvalidURL:
            raise click.UsageError(f"{URL_VARIABLE} is no address") from None
        if url.scheme != "https" and not (url.scheme == "http" and url.host in _LOOPBACK):
            raise click.UsageError(f"{URL_VARIABLE} must be an https:// address: a token is sent there")
        return cls(token, base.rstrip("/"))

    def get(self, path: str, **query: str | int) -> Any:
        """What is at a path below the API's address."""
        return _parsed(self._send("GET", self._url(path, query)))

    def pages(self, path: str, **query: str | int) -> Iterator[Any]:
        """The items of a list, page by page."""
        url = self._url(path, {**query, "per_page": 100})
        for _ in range(_PAGES):
            response = self._send("GET", url)
            items = _parsed(response)
            if not isinstance(items, list):
                raise GitHubError(f"GitHub answered GET {path} with something that is no list: {_RIGHT}")
            yield from items
            following = response.links.get("next", {}).get("url")
            if not following:
                return
            url = url.join(following)
            if (url.scheme, url.netloc) != (response.url.scheme, response.url.netloc):
                raise GitHubError("GitHub's answer leads to another host: the token does not go there")
        raise GitHubError(f"GET {path} has more than {_PAGES} pages of 100: too many to look through")

    def patch(self, path: str, body: Mapping[str, Any]) -> str:
        """Changes a comment or an issue and returns its address; doing it twice is the same as doing it once."""
        return page_of(_parsed(self._send("PATCH", self._url(path), body)))

    def create(self, path: str, body: Mapping[str, Any], find: Callable[[], Mapping[str, Any] | None]) -> str:
        """Creates a comment or an issue and returns its address.

        If the answer is lost, it may or may not have been created: `find` looks for it before another one is.
        """
        url = self._url(path)
        try:
            return page_of(_parsed(self._send("POST", url, body)))
        except GitHubError as error:
            if not error.is_lost:
                raise
        return page_of(find() or _parsed(self._send("POST", url, body)))

    def _url(self, path: str, query: Mapping[str, str | int] | None = None) -> httpx.URL:
        return httpx.URL(f"{self.base}/{path.lstrip('/')}", params=query or None)

    def _send(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            return self._send_once(method, url, body)
        except GitHubError as error:
            if error.retry_s is None or error.retry_s > _PATIENCE_S or (error.is_lost and method == "POST"):
                raise
            self.wait(error.retry_s)
        try:
            return self._send_once(method, url, body)
        except GitHubError as error:
            if error.retry_s is None or (error.is_lost and method == "POST"):
                raise
            raise GitHubError(f"{error.message} (tried twice)") from None

    def _send_once(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None) -> httpx.Response:
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "inductor-watch",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        # A server on this host needs no proxy; for all others the proxies of the environment count.
        with_proxy = url.host not in _LOOPBACK
        try:
            response = httpx.request(
                method, url, json=body, headers=headers, timeout=self.timeout_s, trust_env=with_proxy
            )
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, ImportError) as error:
            reason = self._safe(one_line(str(error) or type(error).__name__, 200))
            server = url.netloc.decode()
            raise GitHubError(
                f"GitHub at {server} does not answer {method} {url.path}: {reason}", 1.0, is_lost=True
            ) from None
        if not response.is_success:
            raise self._refusal(response)
        return response

    def _refusal(self, response: httpx.Response) -> GitHubError:
        """The error of an answer that is no success; redirects are not followed, they would carry the token along."""
        code, headers = response.status_code, response.headers
        what = f"{response.request.method} {response.url.path}"
        message = self._safe(_message(response))
        if code == 429 or (code == 403 and (headers.get("x-ratelimit-remaining") == "0" or headers.get("retry-after"))):
            return _rate_limit(headers)
        if code >= 500:
            return GitHubError(f"GitHub answered {what} with {code}: {message}", 1.0, is_lost=code != 503)
        advice = ": it has moved; if the repository was renamed, say its new name" if code < 400 else ""
        return GitHubError(f"GitHub answered {what} with {code} ({message}){_ADVICE.get(code, advice)}")

    def _safe(self, text: str) -> str:
        """A text of the server without the token, in case it repeats it."""
        return text.replace(self.token, "***")


def check_repo(text: str) -> str:
    """`OWNER/REPO` as GitHub spells it. Raises `click.UsageError` for anything else."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.{1,2}$)[A-Za-z0-9._-]+", text):
        raise click.UsageError(f"{one_line(text, 80)!r} is no repository: write OWNER/REPO")
    return text


def check_pull(text: str) -> tuple[str, int]:
    """The repository and the number of `OWNER/REPO#N`. Raises `click.UsageError` for anything else."""
    repo, _, number = text.partition("#")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise click.UsageError(f"{one_line(text, 80)!r} is no pull request: write OWNER/REPO#NUMBER")
    return check_repo(repo), int(number)


def page_of(item: Any) -> str:
    """The address that people open for a comment or an issue. Raises `GitHubError` where it has none."""
    url = item.get("html_url") if isinstance(item, dict) else None
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        raise GitHubError(f"GitHub's answer has no html_url: {_RIGHT}")
    return url


def number_of(item: Mapping[str, Any], key: str) -> int:
    """The number by which GitHub knows a comment or an issue. Raises `GitHubError` where it has none."""
    number = item.get(key)
    if type(number) is not int:
        raise GitHubError(f"GitHub's list has an entry without {key}: {_RIGHT}")
    return number


def has_body(item: Mapping[str, Any], body: str) -> bool:
    """Whether a comment or an issue has this text already; GitHub returns line ends as a browser sends them."""
    return str(item.get("body")).replace("\r\n", "\n").strip() == body.strip()


def _parsed(response: httpx.Response) -> Any:
    try:
        return response.json() if response.content.strip() else None
    except (ValueError, RecursionError):
        what = f"{response.request.method} {response.url.path}"
        raise GitHubError(f"GitHub's answer to {what} is no JSON: {_RIGHT}") from None


def _message(response: httpx.Response) -> str:
    try:
        message = response.json()["message"]
    except (ValueError, RecursionError, KeyError, TypeError):
        message = ""
    return one_line(" ".join(str(message).split()), 200) or "no message"


def _rate_limit(headers: httpx.Headers) -> GitHubError:
    """What is said of a rate limit, and when it ends."""
    reset = headers.get("x-ratelimit-reset", "")
    ends = int(reset) if re.fullmatch(r"[0-9]{9,10}", reset) else None
    until = f" until {datetime.fromtimestamp(ends, UTC):%H:%M} UTC: try again then" if ends else ": try again later"
    retry = headers.get("retry-after", "")
    after_s = float(retry) if re.fullmatch(r"[0-9]{1,6}", retry) else max(0.0, ends - time.time()) if ends else 1.0
    return GitHubError(f"GitHub's rate limit is used up{until}", after_s)
