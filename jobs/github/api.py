"""GitHub's REST API, as far as comments and issues need it: standard library, one retry, one line for whatever is wrong.

The token comes from the environment, goes to the API's own address and nowhere else, and stands in no text of ours.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from typing import IO, Any
from urllib.parse import urlencode, urljoin, urlsplit

import click

from jobs.output.terminal import one_line

#: GitHub Actions sets both; elsewhere a person does.
TOKEN_VARIABLE, URL_VARIABLE = "GITHUB_TOKEN", "GITHUB_API_URL"
DEFAULT_URL = "https://api.github.com"
REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Longer than this nobody waits for a rate limit, and no answer is larger.
_PATIENCE_S = 60.0
_LARGEST = 32 << 20
_PAGES = 100


class GitHubError(click.ClickException):
    """GitHub could not be asked or said no: one line. The exit code is that of surroundings that failed."""

    exit_code = 4


class LostAnswerError(GitHubError):
    """Nobody knows whether the request was done: the server failed, or the line broke, on the way."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: JSON, and where the next page is (empty on the last one)."""

    data: Any
    next_url: str


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token along, whoever it leads to."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """None: the answer with the redirect is an error."""


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
        if not _TOKEN.fullmatch(token):
            raise click.UsageError(f"{TOKEN_VARIABLE} holds characters that no token has: copy it again")
        base = environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        place = _split(base)
        if place.scheme != "https" and not (place.scheme == "http" and place.hostname in _LOOPBACK):
            raise click.UsageError(f"{URL_VARIABLE} must be an https:// address: a token is sent there")
        return cls(token, base.rstrip("/"))

    def get(self, path: str, **query: str | int) -> Any:
        """What is at a path below the API's address."""
        return self._repeated("GET", self._url(path, query)).data

    def pages(self, path: str, **query: str | int) -> Iterator[Any]:
        """The items of a list, page by page."""
        url = self._url(path, {**query, "per_page": 100})
        for _ in range(_PAGES):
            answer = self._repeated("GET", url)
            if not isinstance(answer.data, list):
                raise GitHubError(
                    f"GitHub answered GET {path} with something that is no list: is {URL_VARIABLE} right?"
                )
            yield from answer.data
            if not answer.next_url:
                return
            url = urljoin(url, answer.next_url)
        raise GitHubError(f"GET {path} has more than {_PAGES} pages of 100: too many to look through")

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Changes what is at a path; the same twice is the same once."""
        return self._repeated("PATCH", self._url(path), body).data

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Makes something new. It is tried again only where the server said that it did nothing.

        Raises:
            LostAnswerError: it may or may not have been made: look before you try again.
        """
        return self._repeated("POST", self._url(path), body).data

    def _url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        return f"{self.base}/{path.lstrip('/')}" + (f"?{urlencode(query)}" if query else "")

    def _repeated(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Answer:
        try:
            return self._ask(method, url, body)
        except _TryAgain as again:
            if method == "POST" and not again.is_undone:
                raise LostAnswerError(str(again)) from None
            if again.after_s > _PATIENCE_S:
                raise GitHubError(str(again)) from None
            self.wait(again.after_s)
        try:
            return self._ask(method, url, body)
        except _TryAgain as again:
            kind = GitHubError if method != "POST" or again.is_undone else LostAnswerError
            raise kind(f"{again} (tried twice)") from None

    def _ask(self, method: str, url: str, body: Mapping[str, Any] | None) -> Answer:
        here, there = _split(self.base), _split(url)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise GitHubError("GitHub's answer leads to another host: the token does not go there")
        request = urllib.request.Request(  # noqa: S310 -- https, or http to this host, was checked above
            url,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "User-Agent": "inductor-watch",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        what = f"{method} {there.path}"
        try:
            with self._opener(here.hostname).open(request, timeout=self.timeout_s) as answer:
                text = answer.read(_LARGEST + 1)
                next_url = _next(answer.headers.get("Link", ""))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(what, error) from None
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            said = one_line(str(getattr(error, "reason", error) or type(error).__name__), 200)
            raise _TryAgain(f"GitHub at {here.netloc} does not answer {what}: {self._safe(said)}") from None
        return Answer(_parsed(text, what), next_url)

    def _opener(self, host: str | None) -> urllib.request.OpenerDirector:
        # What is on this host needs no proxy; for all else the proxies of the environment count.
        own = [urllib.request.ProxyHandler({})] if host in _LOOPBACK else []
        return urllib.request.build_opener(_NoRedirects, *own)

    def _refused(self, what: str, error: urllib.error.HTTPError) -> Exception:
        code, headers = error.code, error.headers
        said = self._safe(_message(error.read(1 << 16)))
        is_limit = code == 429 or (
            code == 403 and (headers.get("x-ratelimit-remaining") == "0" or headers.get("retry-after"))
        )
        if is_limit:
            return _TryAgain(f"GitHub's rate limit is used up{_until(headers)}", _retry_after(headers), is_undone=True)
        if code >= 500:
            return _TryAgain(f"GitHub answered {what} with {code}: {said}", 1.0, is_undone=code == 503)
        advice = {
            401: f": {TOKEN_VARIABLE} is not valid there",
            403: f": {TOKEN_VARIABLE} may not do this; it needs to write issues and pull requests",
            404: f": there is no such thing, or {TOKEN_VARIABLE} may not see it",
        }.get(code, "")
        if 300 <= code < 400:
            advice = ": it has moved; if the repository was renamed, say its new name"
        return GitHubError(f"GitHub answered {what} with {code} ({said}){advice}")

    def _safe(self, text: str) -> str:
        """A text of somebody else's without the token, should they have repeated it."""
        return text.replace(self.token, "***")


class _TryAgain(Exception):  # noqa: N818 -- what to do, not what is wrong
    """A failure that may pass. `is_undone`: the server said that it did nothing."""

    def __init__(self, text: str, after_s: float = 1.0, *, is_undone: bool = False) -> None:
        super().__init__(text)
        self.after_s = after_s
        self.is_undone = is_undone


def check_repo(text: str) -> str:
    """`OWNER/REPO` as GitHub spells it. Raises `click.UsageError` for anything else."""
    if not REPO.fullmatch(text) or text.split("/")[1] in (".", ".."):
        raise click.UsageError(f"{one_line(text, 80)!r} is no repository: write OWNER/REPO")
    return text


def check_pull(text: str) -> tuple[str, int]:
    """The repository and the number of `OWNER/REPO#N`. Raises `click.UsageError` for anything else."""
    repo, _, number = text.partition("#")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise click.UsageError(f"{one_line(text, 80)!r} is no pull request: write OWNER/REPO#NUMBER")
    return check_repo(repo), int(number)


def _split(url: str) -> Any:
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        raise click.UsageError(f"{URL_VARIABLE} is no address") from None
    return found


def _next(links: str) -> str:
    """The address of the next page in a `Link` header (RFC 8288), as far as GitHub writes it."""
    found = re.search(r'<([^<>]*)>\s*;[^,]*\brel="?next"?', links)
    return found[1] if found else ""


def _parsed(text: bytes, what: str) -> Any:
    if len(text) > _LARGEST:
        raise GitHubError(f"GitHub's answer to {what} is larger than {_LARGEST >> 20} MiB")
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        raise GitHubError(f"GitHub's answer to {what} is no JSON: is {URL_VARIABLE} right?") from None


def _message(text: bytes) -> str:
    try:
        found = json.loads(text)
        said = found.get("message") if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        said = None
    return one_line(" ".join(str(said).split()), 200) if said else "no message"


def _retry_after(headers: Message) -> float:
    text = headers.get("retry-after", "")
    if re.fullmatch(r"[0-9]{1,6}", text):
        return float(text)
    reset = headers.get("x-ratelimit-reset", "")
    return max(0.0, float(reset) - time.time()) if re.fullmatch(r"[0-9]{1,12}", reset) else 1.0


def _until(headers: Message) -> str:
    reset = headers.get("x-ratelimit-reset", "")
    if not re.fullmatch(r"[0-9]{9,10}", reset):
        return ": try again later"
    return f" until {datetime.fromtimestamp(int(reset), UTC):%H:%M} UTC: try again then"
