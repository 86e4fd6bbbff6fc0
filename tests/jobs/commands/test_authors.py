"""Who writes a record."""

import click
import pytest
from click.testing import CliRunner

from jobs.commands import regressions
from jobs.commands.regressions import _author


@pytest.mark.parametrize(
    ("given", "environ", "git", "user", "expected"),
    [
        (["--author", "me"], {"INDUCTOR_WATCH_AUTHOR": "you", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "me"),
        ([], {"INDUCTOR_WATCH_AUTHOR": "you", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "you"),
        ([], {"INDUCTOR_WATCH_AUTHOR": "", "GITHUB_ACTOR": "octo"}, "Ann Git", "ann", "octo"),
        ([], {}, "", "ann", "ann"),
        ([], {}, "", "", "unknown"),
    ],
)
def test_the_nearest_word_counts(given, environ, git, user, expected, monkeypatch):
    monkeypatch.setattr(regressions, "_git_name", lambda: git)
    monkeypatch.setattr(regressions, "_user", lambda: user)
    done = CliRunner(env=environ).invoke(click.command()(_author(lambda author: click.echo(author))), given)
    assert done.output == f"{expected}\n"


def test_a_host_without_git_has_no_name_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert regressions._git_name() == ""
