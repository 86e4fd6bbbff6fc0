"""The help of every verb ends with an example that the command line takes."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from jobs.cli import EXAMPLES, VERBS, app


def parse(command, words, name):
    """Parses without running; a group's verb likewise."""
    context = command.make_context(name, list(words))
    if isinstance(command, click.Group):
        name, verb, rest = command.resolve_command(context, context.protected_args + context.args)
        parse(verb, rest, name)


def test_every_verb_has_an_example():
    assert list(EXAMPLES) == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_its_example(verb):
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    assert shown.output.rstrip().endswith(f"Example:\n    inductor-watch {EXAMPLES[verb]}")


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_is_taken(verb, tmp_path, monkeypatch):
    for name in ("test-reports", "pytorch", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    first, *rest = shlex.split(EXAMPLES[verb])
    assert first == verb
    with click.Context(app) as context:
        parse(app.get_command(context, verb), rest, verb)
