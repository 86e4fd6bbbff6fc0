"""Who writes a record."""

import pytest

from jobs.git import authors
from jobs.git.authors import author_of


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ("me", {"INDUCTOR_WATCH_AUTHOR": "you", "GITHUB_ACTOR": "octo"}, "me"),
        (None, {"INDUCTOR_WATCH_AUTHOR": " you ", "GITHUB_ACTOR": "octo"}, "you"),
        (" ", {"INDUCTOR_WATCH_AUTHOR": "", "GITHUB_ACTOR": "octo"}, "octo"),
    ],
)
def test_the_nearest_word_counts(given, environ, expected):
    assert author_of(given, environ) == expected


def test_without_a_word_it_is_git_then_the_user_then_nobody_known(monkeypatch):
    monkeypatch.setattr(authors, "_git_name", lambda: "Ann Git")
    monkeypatch.setattr(authors, "_user", lambda: "ann")
    assert author_of(None, {}) == "Ann Git"
    monkeypatch.setattr(authors, "_git_name", lambda: "")
    assert author_of(None, {}) == "ann"
    monkeypatch.setattr(authors, "_user", lambda: "")
    assert author_of(None, {}) == "unknown"


def test_a_host_without_git_has_no_name_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert authors._git_name() == ""
