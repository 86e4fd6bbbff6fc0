"""Options of `run` and `nightly`: how they become configs, how carefully is measured, and how often."""

from __future__ import annotations

import json
import re
import shlex

import click
import pytest
from click.testing import CliRunner

from collector.settings import Settings
from collector.vocabulary import Config
from jobs.cli import app
from jobs.plan.planning import planned_night
from jobs.plan.spared_cells import SAME_CODE_AS
from jobs.pool.session import print_next
from jobs.requested_options import RequestedOptions, Selection
from tests.dashboard import stores
from tests.factories import night, passing

OWN = ("run", "--model", "my_models:tiny", "--no-store")
SMALL = ("--device", "cpu", "--model", "T5Small", "--config", "triton")


def called(*words):
    """The command line, where GitHub's variables are not heard."""
    return CliRunner(env={"INDUCTOR_WATCH_NIGHT": None}).invoke(app, [str(word) for word in words])


def test_a_model_of_ones_own_is_planned_without_being_imported(measured):
    for words in (("--replicates", "0"), ("--precision", "2"), ("--again", "--replicates", "2")):
        assert called(*OWN, *words).exit_code == 2
    assert measured == []
    assert called(*OWN, "--backend", "eager", "--batch-size", "3").exit_code == 0
    ((plan, names, settings),) = measured
    (cell,) = plan.cells
    assert (cell.suite, cell.model, cell.batch_size) == ("user", "my_models:tiny", 3)
    assert cell.config == Config(backend="eager")
    assert (settings.precision, settings.warm_compile, names.night) == (0.0, False, "")


@pytest.mark.parametrize("verb", ["run", "nightly"])
def test_run_and_nightly_measure_as_carefully_as_they_are_told(verb, measured, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    traces = ("--trace", str(tmp_path / "traces"))  # kept relative to where it was asked for
    done = called(verb, "--no-store", *SMALL, "--precision", "0.01", "--warm-compile", *traces)
    assert done.exit_code == 0, done.output
    ((_, _, settings),) = measured
    assert (settings.precision, settings.warm_compile, settings.trace) == (0.01, True, "../traces")


def test_options_of_a_bundle_from_before_there_was_one_are_read():
    settings = Settings(precision=0.01, warm_compile=True, trace="traces")
    asked = json.loads(json.dumps(RequestedOptions(settings).to_json()))
    assert RequestedOptions.from_json(asked).settings == settings
    del asked["settings"]["trace"]
    assert RequestedOptions.from_json(asked).settings.trace == ""
    # Compiled programs are run: no folder of them is taken from a header.
    folders = {"compiled": "/anywhere", "candidates": "/anywhere"}
    asked["settings"] |= folders | {"trace": "traces", "compile_cores": [10**6], "passed_code": "a", "unchecked": True}
    assert RequestedOptions.from_json(asked).settings == settings


def test_what_run_says_to_do_next_finds_something(tmp_path):
    nights = enumerate((("run-0", ""), ("run-1", ""), ("run-again", "run-1")))
    runs = [night(tmp_path, name, minutes=60 * number, night=of_night) for number, (name, of_night) in nights]
    database = str(stores.store(tmp_path / "store.db", runs))
    said = CliRunner().invoke(click.command(lambda: print_next(database, ["run-1", "run-again"]))).output
    commands = re.findall(r"inductor-watch (compare .*)", said)
    assert ["compare run-1 run-again" in line for line in commands] == [False, True]
    for line in commands:
        done = called(*shlex.split(line))
        assert done.exit_code == 0, done.output


@pytest.fixture
def nightly(tmp_path, measured):
    """Calls `nightly` after so many nights; returns how that ended and the names of those that it would have measured."""

    def call(nights, *words):
        runs = [night(tmp_path, f"r{number}", minutes=1440 * number) for number in range(nights)]
        places = ("--out", tmp_path / "runs", "--db", stores.store(tmp_path / "store.db", runs))
        done = called("nightly", *SMALL, "--branch", "main", *places, *words)
        return done, [names.night for _, names, _ in measured]

    return call


@pytest.mark.parametrize(
    ("nights", "words", "expected"),
    [(6, (), 2), (7, (), 1), (1, ("--replicates", "3"), 3), (1, ("--no-store",), 1), (1, ("--max-hours", "2"), 1)],
)
def test_a_branch_of_few_nights_is_measured_twice_unless_it_is_said(nightly, nights, words, expected):
    done, names = nightly(nights, *words)
    assert (done.exit_code, len(names)) == (0, expected), done.output
    assert len(set(names)) == 1  # one night, whatever it is called
    assert all(names) == (expected > 1)


def test_cells_that_were_carried_over_are_not_measured_twice(nightly, measured):
    (planned,) = planned_night("cpu", Selection(models=("T5Small",)), ("triton",)).cells
    measured.progress.took(passing(planned, details={"only": "code", SAME_CODE_AS: "r0"}))
    done, names = nightly(1, "--unchanged-code", "skip")
    assert (done.exit_code, len(names)) == (0, 1), done.output
