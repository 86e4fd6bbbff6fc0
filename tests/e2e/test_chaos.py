"""The faults of `make chaos` in their short form, and saboteurs whose work must be counted."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from tests.chaos.__main__ import main, measure
from tests.chaos.faults import FAULTS
from tests.chaos.processes import ROOT, warm_up
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally, table

#: The tests' PostgreSQL is slower to have than all of this takes; `make chaos` and the slow test have one.
QUICK = (
    "kill-writer",
    "kill-ingest",
    "full-run-folder",
    "mutated-bundle",
    "mutated-gzip",
    "mutated-csv",
    "mutated-json",
)
#: Which counter moves if somebody takes something away, or adds it, behind a fault's back.
SABOTAGED = [
    ("kill-writer", "drop-a-line", "lost"),
    ("kill-writer", "double-a-line", "doubled"),
    ("kill-ingest", "drop-a-row", "lost"),
]
SABOTAGED_TOO = [
    ("kill-ingest", "double-a-row", "doubled"),
    ("kill-import", "double-a-row", "doubled"),
    ("crowd", "drop-a-row", "lost"),
    ("locked", "drop-a-row", "lost"),
    ("corrupt", "double-a-row", "doubled"),
    ("clock", "drop-a-row", "lost"),
    ("mutated-bundle", "drop-a-row", "lost"),
    ("mutated-gzip", "double-a-row", "doubled"),
    ("mutated-csv", "drop-a-line", "lost"),
    ("mutated-json", "double-a-line", "doubled"),
    ("names", "drop-a-row", "lost"),
]


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up()


def setting(tmp_path, sabotage="", seed=1):
    return Setting(tmp_path / "fault", random.Random(seed), is_short=True, sabotage=sabotage)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_costs_nothing(name, tmp_path):
    tally = measure(name, setting(tmp_path))
    assert not tally.skipped or name.startswith("full-"), tally.skipped
    assert tally.is_sound, tally.to_json()
    assert tally.tries > 0 or tally.skipped


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*FAULTS} - {*QUICK}))
def test_a_slower_fault_costs_nothing(name, tmp_path, request):
    given = setting(tmp_path)
    if name.endswith("-postgres"):
        given.postgres = request.getfixturevalue("postgres").migrated
    tally = measure(name, given)
    assert tally.is_sound, tally.to_json()
    assert tally.tries > 0 or tally.skipped


@pytest.mark.parametrize(("name", "sabotage", "counter"), SABOTAGED)
def test_sabotage_is_counted(name, sabotage, counter, tmp_path):
    tally = measure(name, setting(tmp_path, sabotage))
    assert getattr(tally, counter) >= 1, tally.to_json()
    assert tally.verdict == "BROKEN"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sabotage", "counter"), SABOTAGED_TOO)
def test_sabotage_of_slower_faults_is_counted(name, sabotage, counter, tmp_path):
    test_sabotage_is_counted(name, sabotage, counter, tmp_path)


def test_the_command_prints_its_seed_and_ends_with_1_if_something_was_lost():
    words = (sys.executable, "-m", "tests.chaos", "--short", "--only", "mutated-gzip", "--seed", "5", "--json")
    sound = subprocess.run(words, cwd=ROOT, capture_output=True)
    assert sound.returncode == 0, sound.stderr
    told = json.loads(sound.stdout)
    assert (told["seed"], told["faults"][0]["verdict"], told["faults"][0]["tries"]) == (5, "ok", 20)


def test_a_sabotaged_command_ends_with_1(capsys):
    assert main(["--short", "--only", "mutated-gzip", "--seed", "5", "--sabotage", "double-a-row"]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_a_fault_that_was_never_tried_is_no_success():
    assert Tally("x").verdict == "BROKEN"
    assert Tally("x", skipped="no root").verdict == "skipped: no root"


@pytest.mark.parametrize("act", [lambda t: t.lose(1, "a"), lambda t: t.double(1, "a"), lambda t: t.trace("a")])
def test_every_counter_spoils_the_verdict_and_is_told(act):
    tally = Tally("x", tries=1)
    assert tally.verdict == "ok"
    act(tally)
    assert tally.verdict == "BROKEN"
    assert table([tally]).splitlines()[-1].startswith("x: ")


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_whole_of_make_chaos():
    done = subprocess.run([sys.executable, "-m", "tests.chaos", "--seed", "1"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
