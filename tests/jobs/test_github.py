"""Comments and issues against a stand-in server on a real socket: refused in a line, no token told."""

from __future__ import annotations

import time

import click
import pytest

from jobs.github import MARKER, GitHub, GitHubError, check_pull, check_repo, put_comment
from tests.jobs.github_server import TOKEN, Failure


@pytest.fixture
def waits():
    return []


@pytest.fixture
def put(server, waits):
    """Puts a text as our comment on the pull request 7; returns what became of it."""
    github = GitHub(TOKEN, server.url, timeout_s=5, wait=waits.append)
    assert TOKEN not in repr(github)
    return lambda text="one": put_comment(github, "o/r", 7, text)


def refused(call, kind=GitHubError):
    """The one line of an error, which never holds the token."""
    with pytest.raises(kind) as caught:
        call()
    said = str(caught.value.message if isinstance(caught.value, click.ClickException) else caught.value)
    assert "\n" not in said
    assert TOKEN not in said + repr(caught.value)
    return said


def test_the_first_report_makes_a_comment_and_the_next_ones_edit_it(server, put):
    words = [(word, f"{server.url}/c/0") for word in ("created", "updated", "unchanged")]
    assert [put("one"), put("two"), put("two")] == words
    assert [comment["body"] for comment in server.comments] == [f"{MARKER}\ntwo"]
    assert server.count("PATCH") == 1
    assert server.tokens == {f"Bearer {TOKEN}"}


def test_our_comment_is_found_behind_pages_of_others(server, put):
    server.page_size = 10
    for number in range(25):
        server.comment(7, f"talk {number}")
    foreign = [(7, f"> {MARKER}\n> quoted"), (8, f"{MARKER}\nof another pull request")]
    for number, text in (*foreign, (7, f"{MARKER}\r\nold")):
        server.comment(number, text)
    assert put("new")[0] == "updated"
    ours = [comment["body"] for comment in server.comments if MARKER in comment["body"]]
    assert ours == [*(text for _, text in foreign), f"{MARKER}\nnew"]
    assert server.count("POST") == 0


@pytest.mark.parametrize(("status", "word"), [(503, "503"), (0, "does not answer")])
def test_a_server_that_fails_once_is_asked_again_and_twice_is_one_line(status, word, server, put, waits):
    server.failures.append(Failure("GET", status, times=2))
    said = refused(put)
    assert word in said and "tried twice" in said
    assert (server.comments, waits) == ([], [1.0])
    server.failures.append(Failure("GET", status))
    assert put()[0] == "created"
    assert waits == [1.0, 1.0]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_comment_is_never_made_twice_when_the_answer_is_lost(is_done, server, put):
    server.failures.append(Failure("POST", 0, is_done=is_done))
    refused(put)
    assert put()[0] == ("unchanged" if is_done else "created")
    assert len(server.comments) == 1


def test_a_short_rate_limit_is_waited_for_and_a_long_one_is_not(server, put, waits):
    reset = int(time.time()) + 3000
    server.failures.append(Failure("GET", 403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset)}))
    assert "with 403 (try later)" in refused(put)
    assert waits == []
    server.failures.append(Failure("POST", 429, {"Retry-After": "7"}))
    assert put()[0] == "created"
    assert waits == [7.0]


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (401, {}, b"", "not valid"),
        (403, {}, b"", "may not do this"),
        (301, {"Location": "http://127.0.0.1:9/elsewhere"}, b"", "has moved"),
        (422, {}, f'{{"message": "bad {TOKEN}"}}'.encode(), "bad ***"),
        (200, {}, b"<html>proxy</html>", "GITHUB_API_URL right?"),
        (200, {}, b'{"a": 1}', "GITHUB_API_URL right?"),
        (200, {"Link": '<http://evil.example/x>; rel="next"'}, b"[]", "another host"),
    ],
)
def test_a_refusal_or_nonsense_is_one_line_and_not_repeated(status, headers, body, words, server, put, waits):
    server.failures.append(Failure("GET", status, headers, body))
    assert words in refused(put)
    assert (len(server.seen), waits) == (1, [])


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "GITHUB_TOKEN is not set"),
        ({"GITHUB_TOKEN": f"{TOKEN}\nX-Evil: 1"}, "characters that no token has"),
        ({"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "http://ghe.example"}, "must be an https:// address"),
        ({"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "https://[::1"}, "is no address"),
    ],
)
def test_a_token_goes_to_a_safe_place_or_nowhere(environ, said):
    assert said in refused(lambda: GitHub.from_environment(environ), click.UsageError)
    found = GitHub.from_environment({"GITHUB_TOKEN": f" {TOKEN} ", "GITHUB_API_URL": "https://ghe.example/api/v3/"})
    assert (found.token, found.base) == (TOKEN, "https://ghe.example/api/v3")


def test_pull_requests_are_written_as_github_writes_them():
    assert check_pull("pytorch/pytorch#154667") == ("pytorch/pytorch", 154667)
    for text in ("o/r", "o/r#0", "o#1", "o/../r#1", "o/r\n#1"):
        assert "is no" in refused(lambda text=text: check_pull(text), click.UsageError)
    assert "is no repository" in refused(lambda: check_repo("a/b/c"), click.UsageError)
