"""Which cells of a night are carried over: by bundles of earlier nights, and by the files of torch that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collector.code import known_by
from collector.settings import Settings
from collector.vocabulary import Config, Failure, Stage, Status
from jobs.builds.build_options import BuildError
from jobs.builds.overlay import Wheel, _make
from jobs.plan.spared_cells import SAME_CODE_AS, Known, carrying_over, known_cells, tuning_key
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.factories import ENVIRONMENT, cell, failing, header, passing, write_bundle

CELL = cell()
#: Seven nights, as by default.
REQUESTED = RequestedOptions(Settings(rounds=7), ExecutionOptions(carried_nights=7))
ALIKE = {"trigger": "nightly", "asked": REQUESTED.to_json()}
TONIGHT = header("tonight", minutes=10_000, **ALIKE)
CODE = known_by("c0de", passing(CELL).program_id, ENVIRONMENT)


def measured(**changes):
    return passing(CELL, **{"code_id": "c0de", **changes})


def carried():
    return measured(metrics={}, samples={}, details={"only": "code", SAME_CODE_AS: "r0"})


def write(folder, *nights, **changes):
    """A night for each measurement, the oldest first: r0, r1, ..."""
    for number, item in enumerate(nights):
        write_bundle(folder, header(f"r{number}", minutes=number, **ALIKE | changes), [item])
    return folder


def known(folder, tonight=TONIGHT, requested=REQUESTED):
    return known_cells(folder, tonight, requested)


def test_a_cell_is_known_by_the_newest_night_that_measured_it_whole(tmp_path):
    write(tmp_path, measured(), carried(), carried())
    assert known(tmp_path) == {CELL.cell_id: Known("r0", CODE)}
    write(tmp_path / "later", measured(), measured(code_id="0ther"))
    assert known(tmp_path / "later")[CELL.cell_id].night == "r1"
    assert known(tmp_path / "later")[CELL.cell_id].code != CODE


@pytest.mark.parametrize(("nights", "is_known"), [(6, True), (7, False)])
def test_a_cell_is_carried_over_for_so_many_nights_and_then_measured_again(tmp_path, nights, is_known):
    write(tmp_path, measured(), *[carried()] * nights)
    assert bool(known(tmp_path)) is is_known
    fewer = replace(REQUESTED, execution=ExecutionOptions(carried_nights=nights - 1))
    assert known(tmp_path, requested=fewer) == {}


def test_a_model_whose_eager_form_is_unsteady_is_carried_over_as_such(tmp_path):
    failure = Failure(Stage.CORRECTNESS, "IllConditioned", "eager's own outputs jump")
    write(tmp_path, measured(status=Status.ILL_CONDITIONED, failure=failure))
    (one,) = known(tmp_path).values()
    tonight = measured(metrics={}, details={"only": "code"})
    one.carry_over(tonight)
    assert (tonight.status, tonight.failure) == (Status.ILL_CONDITIONED, failure)
    assert tonight.details[SAME_CODE_AS] == "r0"


@pytest.mark.parametrize(
    "newest",
    [
        failing(CELL),
        measured(code_id=None),
        measured(details={"disturbed": "the device was not idle"}),
        measured(environment_id=None),
    ],
)
def test_what_failed_or_was_disturbed_is_measured_again(tmp_path, newest):
    write(tmp_path, measured(), newest)
    assert known(tmp_path) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"branch": "other"},
        {"testbed": {"accelerator": "Another GPU"}},
        {"trigger": "adhoc"},
        {"tool_version": "9.9"},
        {"asked": RequestedOptions(Settings(rounds=8)).to_json()},
        {"asked": None},
        {"night": "tonight"},
    ],
)
def test_a_run_that_is_not_comparable_or_of_this_night_is_not_carried_from(tmp_path, changes):
    assert known(write(tmp_path / "alike", measured()))
    assert known(write(tmp_path / "other", measured(), **changes)) == {}


def overlay(folder, wheel, **files):
    """What `make_overlay` leaves: a folder of links into the wheel, and the files that differ."""
    _make(folder, wheel, {f"torch/_inductor/{name.replace('__', '/')}.py": text for name, text in files.items()})
    return str(folder)


def test_a_commit_is_carried_from_if_no_file_differs_that_acts_at_run_time(tmp_path):
    for name in ("version", "_inductor/ir", "_inductor/runtime/hints"):
        path = tmp_path / "wheel" / "torch" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    wheel = Wheel(tmp_path / "wheel", "9", "f" * 40)
    before = overlay(tmp_path / "before", wheel, ir=b"1", runtime__hints=b"1")
    asked = replace(REQUESTED, execution=ExecutionOptions(carried_nights=7, overlay=before)).to_json()
    folder = write(tmp_path / "runs", measured(), asked=asked)

    def is_known(name):
        execution = ExecutionOptions(carried_nights=7, overlay=str(name))
        return bool(known(folder, requested=replace(REQUESTED, execution=execution)))

    assert is_known(before)
    assert is_known(overlay(tmp_path / "generates", wheel, ir=b"2", runtime__hints=b"1", new=b""))
    assert not is_known(overlay(tmp_path / "acts", wheel, ir=b"1", runtime__hints=b"2"))
    assert not is_known(overlay(tmp_path / "less", wheel, ir=b"1"))
    assert not is_known("")  # the wheel itself
    (tmp_path / "acts" / "torch" / "_inductor" / "runtime" / "hints.py").unlink()
    assert not is_known(tmp_path / "acts")
    Path(before).rename(tmp_path / "gone")
    assert not is_known(tmp_path / "generates")


def test_tuning_is_shared_beside_the_bundles_unless_a_folder_is_named(tmp_path):
    requested = carrying_over(RequestedOptions(), 3, tmp_path / "runs")
    assert requested.execution.carried_nights == 3
    assert requested.settings.shared_tuning == str(tmp_path / "runs" / "tuning")
    named = carrying_over(RequestedOptions(Settings(shared_tuning="/mine")), 3, tmp_path)
    assert named.settings.shared_tuning == "/mine"
    assert RequestedOptions.from_json(named.to_json()) == named


def test_a_working_tree_of_torch_is_refused(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(Wheel, "installed", lambda: Wheel(tmp_path, "9", "f" * 40))
    with pytest.raises(BuildError, match=r"working tree .* may change between two nights") as caught:
        carrying_over(RequestedOptions(), 7, tmp_path)
    assert "\n" not in str(caught.value)


def test_configs_that_tune_alike_share_a_key_and_no_others():
    templates = ("triton", "cpp_wrapper", "max_autotune", "aten", "tma")
    named = {name: tuning_key(Config(template=name), "cuda") for name in templates}
    assert named["triton"] == named["cpp_wrapper"]
    assert named["aten"] == named["tma"]
    assert len({named["triton"], named["max_autotune"], named["aten"]}) == 3
    assert named["max_autotune"] == tuning_key(Config(mode="max-autotune"), "cuda")
    assert tuning_key(Config(backend="eager"), "cuda") == tuning_key(Config(template="tritn"), "cuda") == ""
