"""Who writes a record."""

import pytest

from jobs.git import authors
from jobs.git.authors import author_of


@pytest.mark.parametrize(
    ("given", "environ", "git", "user", "expected"),
    [
        ("me", {"INDUCTOR_WATCH_AUTHOR": "you", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "me"),
        (None, {"INDUCTOR_WATCH_AUTHOR": " you ", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "you"),
        (" ", {"INDUCTOR_WATCH_AUTHOR": "", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "octo"),
        (None, {}, "Ann Git", "ann", "Ann Git"),
        (None, {}, "", "ann", "ann"),
        (None, {}, "", "", "unknown"),
    ],
)
def test_the_nearest_word_counts(given, environ, git, user, expected, monkeypatch):
    monkeypatch.setattr(authors, "_git_name", lambda: git)
    monkeypatch.setattr(authors, "_user", lambda: user)
    assert author_of(given, environ) == expected


def test_a_host_without_git_has_no_name_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert authors._git_name() == ""
