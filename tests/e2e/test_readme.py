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


def test_the_first_commands_show_a_comparison_that_names_memory_too(tmp_path):
    """On the shipped nights: compare in 80 columns keeps what matters, and a gate may fail on memory alone."""
    ingest, compare = [words for words in commands() if words[0] in ("ingest", "compare")][:2]

    def ask(*words, code=0):
        done = call(*words, folder=ROOT, INDUCTOR_WATCH_DB=str(tmp_path / "first.db"), COLUMNS="80")
        assert done.returncode == code, tell(done)
        return done.stdout.splitlines()

    ask(*ingest)
    lines = ask(*compare)
    assert any("memory: 10 regressed" in line for line in lines)
    assert any("735 MB  1.58 GB +115.5 % +114.8..+116.2" in line for line in lines)
    (slower,) = (line.split()[1] for line in lines if line.startswith("  latency: "))
    assert f"A third night with one bad commit has {slower} slower cells." in " ".join(
        (ROOT / "README.md").read_text().split()
    )
    assert "regressed: 64 in 54 cells, the first 20 of them (--limit shows more)" in lines
    assert "not shown: 10 improved, 10 no clear change, 2 unchanged (--limit shows more)" in lines
    assert "  slower than eager: 4 cells of new (SDPA.causal_gqa 0.82x, T5Small 0.86x, dlrm 0.91x; 3 of base)" in lines
    lines = ask("gate", *compare[1:], "--fail-on", "memory", code=1)
    found = [line.rpartition("(")[2] for line in lines if line.startswith("regressed: ")]
    assert found[:3] == ["peak memory +115.5 %)", "peak memory +110.3 %)", "peak memory +49.2 %)"]
    assert lines[-1] == "gate: 10 regressed in memory"
