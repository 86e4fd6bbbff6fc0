"""What the README tells a new user to type is what the command line takes, and its first commands show something."""

from __future__ import annotations

import shlex

import click
import pytest

from jobs.cli import app
from tests.command_line import ROOT, call, tell
from tests.jobs.commands.test_cli import parse

PROGRAMS = ("inductor-watch", ".venv/bin/inductor-watch")


def commands():
    lines = [line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("    ")]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(PROGRAMS)]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_one_that_the_command_line_takes(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "nights").mkdir(parents=True)
    with click.Context(app) as context:
        parse(app.get_command(context, words[0]), words[1:], words[0])


def test_the_first_commands_show_a_comparison(tmp_path):
    ingest, compare = [words for words in commands() if words[0] in ("ingest", "compare")][:2]
    for words in (ingest, compare):
        done = call(*words, folder=ROOT, INDUCTOR_WATCH_DB=str(tmp_path / "first.db"))
        assert done.returncode == 0, tell(done)
    assert "T5Small" in done.stdout
