"""The help of every verb ends with an example that the command line takes."""

from __future__ import annotations

import json
import math
import shlex

import click
import pytest
from click.testing import CliRunner

from jobs.cli import VERBS, app, main
from jobs.output.terminal import NothingBegunError, json_text


def parse(command, words, name):
    """Parses without running; a group's verb likewise."""
    context = command.make_context(name, list(words))
    if isinstance(command, click.Group):
        name, verb, rest = command.resolve_command(context, [*words])
        parse(verb, rest, name)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_its_example_which_is_taken(verb, tmp_path, monkeypatch):
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    _, example = shown.output.rstrip().split("\n\n  Example:\n    inductor-watch ")
    for name in ("test-reports", "pytorch", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    parse(app, shlex.split(example), "inductor-watch")


@pytest.mark.parametrize(
    ("verb", "is_waiting", "said"),
    [
        ("compare", False, "interrupted\n"),
        ("run", True, "interrupted\n"),
        ("run", False, "interrupted: what was measured is in the bundle, `inductor-watch resume` measures the rest\n"),
    ],
)
def test_ctrl_c_speaks_of_resume_only_where_something_was_measured(verb, is_waiting, said, monkeypatch, capsys):
    def interrupt(**how):
        raise click.Abort from (NothingBegunError() if is_waiting else KeyboardInterrupt())

    monkeypatch.setattr(app, "main", interrupt)
    monkeypatch.setattr("sys.argv", ["inductor-watch", verb])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, said)


def test_numbers_that_json_has_not_are_null():
    assert json.loads(json_text({"a": [math.inf, (1.5,)], "b": math.nan})) == {"a": [None, [1.5]], "b": None}
