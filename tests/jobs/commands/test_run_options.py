"""Options of `run`, `nightly` and `plan`: how they become configs, and how carefully is measured."""

from __future__ import annotations

import json
import os
import re
import shlex

import click
import pytest
from click.testing import CliRunner

from collector.settings import Settings
from collector.vocabulary import Config
from db.engine import open_store
from db.ingest import ingest_bundle
from jobs.cli import app
from jobs.commands import measuring
from jobs.pool.session import print_next
from jobs.requested_options import RequestedOptions, config_options
from tests.factories import night


def ran(*words):
    return CliRunner().invoke(measuring.run_command, ["--model", "my_models:tiny", "--no-store", *words])


def test_a_model_of_ones_own_is_planned_without_being_imported(measured):
    assert ran("--backend", "eager", "--batch-size", "3").exit_code == 0
    ((plan, names, settings),) = measured
    (cell,) = plan.cells
    assert (cell.suite, cell.model, cell.batch_size) == ("user", "my_models:tiny", 3)
    assert cell.config == Config(backend="eager")
    assert (settings.precision, settings.warm_compile, names.night) == (0.0, False, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", [Config()]),
        ("--backend aot_eager", [Config(backend="aot_eager")]),
        ("--config triton --config max-autotune", [Config(template="triton"), Config(mode="max-autotune")]),
        ("--config triton --backend inductor", [Config(template="triton")]),
        ("--config default+freezing=true --backend aot_inductor", [Config(freezing=True, backend="aot_inductor")]),
    ],
)
def test_options_spell_configs(words, expected):
    command = click.command()(config_options(lambda configs: configs))
    assert command.main(words.split(), standalone_mode=False) == expected


CAREFULLY = ("--precision", "0.01", "--warm-compile", "--trace", "traces")
SMALL = ("--device", "cpu", "--model", "T5Small", "--config", "triton")


def called(*words):
    """The command line in a folder of its own, where GitHub's variables are not heard."""
    return CliRunner(env={"INDUCTOR_WATCH_NIGHT": None}).invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("verb", ["run", "nightly"])
def test_run_and_nightly_measure_as_carefully_as_they_are_told(verb, measured, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    traces = ("--trace", str(tmp_path / "traces"))  # kept relative to where it was asked for
    done = called(verb, "--no-store", *SMALL, *CAREFULLY, *traces)
    assert done.exit_code == 0, done.output
    ((_, _, settings),) = measured
    assert (settings.precision, settings.warm_compile, settings.trace) == (0.01, True, "../traces")


def test_a_plan_has_cells_and_what_is_left_out():
    planned = json.loads(called("plan", *SMALL, "--json").output)
    assert set(planned) == {"cells", "left_out"}


def test_options_of_a_bundle_from_before_there_was_one_are_read():
    settings = Settings(precision=0.01, warm_compile=True, trace="traces")
    asked = json.loads(json.dumps(RequestedOptions(settings).to_json()))
    assert RequestedOptions.from_json(asked).settings == settings
    del asked["settings"]["trace"]
    assert RequestedOptions.from_json(asked).settings.trace == ""
    # Compiled programs are run: no folder of them is taken from a header.
    asked["settings"] |= {"compiled": "/anywhere"}
    assert RequestedOptions.from_json(asked).settings.compiled == ""


def test_replicates_are_runs_of_one_night(measured):
    assert ran("--replicates", "3", "--precision", "0.01", "--warm-compile").exit_code == 0
    assert len(measured) == 3
    assert len({tuple(plan.cells) for plan, _, _ in measured}) == 1
    assert {(settings.precision, settings.warm_compile) for _, _, settings in measured} == {(0.01, True)}
    (night,) = {names.night for _, names, _ in measured}
    assert night


@pytest.mark.parametrize("nights", [1, 2])
def test_what_run_says_to_do_next_finds_something(nights, tmp_path):
    database = str(tmp_path / "store.db")
    runs = [night(tmp_path / "runs", f"run-{number}", minutes=60 * number) for number in range(nights)]
    runs.append(night(tmp_path / "runs", "run-again", minutes=60 * nights, night=f"run-{nights - 1}"))
    engine = open_store(database, write=True)
    for path in runs:
        ingest_bundle(engine, path)
    said = CliRunner().invoke(click.command(lambda: print_next(database, [f"run-{nights - 1}", "run-again"]))).output
    commands = re.findall(r"inductor-watch (compare .*)", said)
    assert [f"compare run-{nights - 1} run-again" in line for line in commands] == [False] * (nights - 1) + [True]
    for line in commands:
        done = called(*shlex.split(line))
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "words", [["--replicates", "0"], ["--precision", "0"], ["--precision", "2"], ["--again", "--replicates", "2"]]
)
def test_impossible_options_are_refused(measured, words):
    assert ran(*words).exit_code == 2
    assert measured == []


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_folder_for_shared_tuning_is_an_option_with_its_whole_path(by_variable, measured, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = {name: value for name, value in os.environ.items() if "TUNING" in name}
    if by_variable:
        before["INDUCTOR_WATCH_TUNING"] = "choices"
        monkeypatch.setenv("INDUCTOR_WATCH_TUNING", "choices")
    assert ran(*(() if by_variable else ("--shared-tuning", "choices"))).exit_code == 0
    ((_, _, settings),) = measured
    assert settings.shared_tuning == str(tmp_path / "choices")
    assert RequestedOptions(settings).to_json()["settings"]["shared_tuning"] == str(tmp_path / "choices")
    assert {name: value for name, value in os.environ.items() if "TUNING" in name} == before
