"""Options of `run` that say how carefully to measure, and a back-end by name."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from collector.vocabulary import Config
from jobs.commands import run
from jobs.options import build_configs

NOTHING = {"configs": (), "template": None, "mode": None, "overrides": (), "freezing": None, "dynamic": None}


@pytest.fixture
def asked(monkeypatch):
    """What `run` would measure: a list of (plan, settings), without a machine to measure on."""
    found = []

    class Nobody:
        failing = 0

    def note(plan, testbeds, names, settings, out, database):
        found.append((plan, settings, names))
        return [], Nobody()

    monkeypatch.setattr("jobs.session.measure_and_store", note)
    monkeypatch.setattr("jobs.testbeds.find_testbeds", lambda device, pace: [])
    monkeypatch.setattr("jobs.testbeds.device_of", lambda testbeds: "cpu")
    return found


def ran(*words):
    return CliRunner().invoke(run.command, ["--model", "my_models:tiny", "--no-store", *words])


def test_a_model_of_ones_own_is_planned_without_being_imported(asked):
    assert ran("--backend", "eager", "--batch-size", "3").exit_code == 0
    ((plan, settings, _),) = asked
    (cell,) = plan.cells
    assert (cell.suite, cell.model, cell.batch_size) == ("user", "my_models:tiny", 3)
    assert cell.config == Config(backend="eager")
    assert (settings.precision, settings.warm_compile) == (0.0, False)


def test_replicates_are_runs_of_one_night(asked):
    assert ran("--replicates", "3", "--precision", "0.01", "--warm-compile").exit_code == 0
    assert len(asked) == 3
    assert len({tuple(plan.cells) for plan, _, _ in asked}) == 1
    assert {(settings.precision, settings.warm_compile) for _, settings, _ in asked} == {(0.01, True)}
    (night,) = {names.night for _, _, names in asked}
    assert night


def test_one_replicate_is_a_run_of_its_own(asked):
    ran()
    assert asked[0][2].night == ""


def test_what_is_measured_again_is_measured_as_often_as_it_needs():
    found = CliRunner().invoke(run.command, ["--again", "--replicates", "2"])
    assert found.exit_code == 2
    assert "leave out --replicates" in found.output


@pytest.mark.parametrize("words", [["--replicates", "0"], ["--precision", "0"], ["--precision", "2"]])
def test_impossible_numbers_are_refused(asked, words):
    assert ran(*words).exit_code == 2
    assert asked == []


def test_a_backend_by_name_excludes_configs():
    assert build_configs(**NOTHING, fullgraph=False, backend="aot_eager") == [Config(backend="aot_eager")]
    with pytest.raises(click.UsageError, match="--backend"):
        build_configs(**{**NOTHING, "configs": ("triton",)}, fullgraph=False, backend="eager")
