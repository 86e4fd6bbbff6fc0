"""GitHub's REST API for comments and issues: one retry, one line for every error.

The token comes from the environment, goes to the API's own address only, and is part of no message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import httpx

from jobs.output.addresses import LOOPBACK, check_secret_address, check_token
from jobs.output.terminal import one_line

#: GitHub Actions sets both; elsewhere a person does.
TOKEN_VARIABLE, URL_VARIABLE = "GITHUB_TOKEN", "GITHUB_API_URL"
DEFAULT_URL = "https://api.github.com"
#: Seconds: a rate limit that ends later is not waited for.
_PATIENCE_S = 60.0
_RIGHT = f"is {URL_VARIABLE} right?"
_ADVICE = {
    301: ": it has moved; if the repository was renamed, say its new name",
    401: f": {TOKEN_VARIABLE} is not valid there",
    403: f": {TOKEN_VARIABLE} may not do this; it needs to write issues and pull requests",
    404: f": there is no such thing, or {TOKEN_VARIABLE} may not see it",
}


class GitHubError(click.ClickException):
    """GitHub did not answer or refused: one line. The exit code is that of a failed environment."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class GitHub:
    """The API at an address. `wait` sleeps for so many seconds before the one retry. All methods raise `GitHubError`."""

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
        base = environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
        return cls(check_token(TOKEN_VARIABLE, token), check_secret_address(URL_VARIABLE, base).rstrip("/"))

    def pages(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """The objects of a list, page by page."""
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
        """Changes a comment or an issue and returns its address."""
        return page_of(_parsed(self._send("PATCH", httpx.URL(f"{self.base}/{path}"), body)))

    def create(self, path: str, body: Mapping[str, Any]) -> str:
        """Creates a comment or an issue and returns its address. Where the answer is lost, it may be there all the same."""
        return page_of(_parsed(self._send("POST", httpx.URL(f"{self.base}/{path}"), body)))

    def _send(self, method: str, url: httpx.URL, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """The answer; what may pass is tried once more, unless that could create something twice.

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


def has_body(item: Mapping[str, Any], body: str) -> bool:
    """Whether a comment or an issue has this text already; GitHub returns line ends as a browser sends them."""
    return str(item.get("body")).replace("\r\n", "\n").strip() == body.strip()


def _delay_s(response: httpx.Response, method: str) -> float | None:
    """Seconds after which a refused request may pass; None where it will not, or may have been done all the same."""
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
