"""The help of every verb ends with an example that the command line takes."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from jobs.cli import VERBS, app, main


def parse(command, words, name):
    """Parses without running; a group's verb likewise."""
    context = command.make_context(name, list(words))
    if isinstance(command, click.Group):
        name, verb, rest = command.resolve_command(context, [*words])
        parse(verb, rest, name)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_its_example(verb):
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    assert shown.output.rstrip().endswith(f"Example:\n    inductor-watch {VERBS[verb].example}")


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_is_taken(verb, tmp_path, monkeypatch):
    for name in ("test-reports", "pytorch", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    first, *rest = shlex.split(VERBS[verb].example)
    assert first == verb
    with click.Context(app) as context:
        parse(app.get_command(context, verb), rest, verb)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["comparr"], "inductor-watch: no command 'comparr': did you mean compare? (see inductor-watch --help)"),
        (["compare", "one"], "inductor-watch: Missing argument 'NEW' (see inductor-watch compare --help)"),
        (["commits", "branch", "--base", "abc"], "inductor-watch: --base needs the NAME of a branch"),
    ],
)
def test_a_wrong_command_line_is_answered_with_one_line(words, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["inductor-watch", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(said)


def test_a_former_name_of_an_option_works_and_stands_in_no_help():
    shown = CliRunner().invoke(app, ["bisect", "--help"]).output
    assert "--git PATH" in shown
    assert "--repo-dir" not in shown
    with click.Context(app) as context:
        found = app.get_command(context, "bisect").make_context(
            "bisect",
            ["--model", "m", "--config", "c", "--good", "2.9", "--bad", "2.10", "--repo-dir", ".", "--most", "5"],
        )
    assert (str(found.params["clone"]), found.params["most_runs"]) == (".", 5)


def options_of(verb):
    """Every option of a verb and of the verbs below it: name, help, default."""
    with click.Context(app) as context:
        found = [app.get_command(context, verb)]
    for command in found:
        found += getattr(command, "commands", {}).values()
        yield from (
            (option.opts[0], option.help, option.default)
            for option in command.params
            if isinstance(option, click.Option)
        )


@pytest.mark.parametrize(
    "verb", ["bisect", "changepoints", "commits", "compare", "gate", "resume", "run", "runs", "zoo"]
)
def test_every_option_says_what_it_is_for(verb):
    assert [name for name, text, _ in options_of(verb) if len((text or "").partition("[")[0].split()) < 2] == []


@pytest.mark.parametrize(
    ("verbs", "names"),
    [
        (
            ("compare", "gate", "report", "changepoints"),
            {"--suite", "--model", "--phase", "--dtype", "--device", "--config"},
        ),
        (("run", "nightly", "backfill"), {"--suite", "--model", "--dtype", "--device", "--out", "--no-store"}),
        (("changepoints", "runs"), {"--branch"}),
        (("run", "resume", "import"), {"--out", "--no-store"}),
        (("nightly", "resume"), {"--max-hours"}),
        (("templates", "modes", "run"), {"--device"}),
    ],
)
def test_an_option_that_verbs_share_is_the_same_in_each(verbs, names):
    found = [{option for option in options_of(verb) if option[0] in names} for verb in verbs]
    assert {name for name, _, _ in found[0]} == names
    assert all(options == found[0] for options in found)


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("compare", "interrupted\n"),
        ("run", "interrupted: what was measured is in the bundle, `inductor-watch resume` measures the rest\n"),
    ],
)
def test_ctrl_c_speaks_of_resume_only_where_something_was_measured(verb, said, monkeypatch, capsys):
    def interrupt(**how):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "main", interrupt)
    monkeypatch.setattr("sys.argv", ["inductor-watch", verb])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, said)
