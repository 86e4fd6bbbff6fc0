"""Which cells a night does not measure: further names of one program, and what earlier nights have measured."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from collector.code import known_by
from collector.configs import parse_config
from collector.settings import Settings
from collector.vocabulary import Config, Failure, Phase, Stage, Status
from jobs.builds.build_options import BuildError
from jobs.builds.overlay import Wheel, _make
from jobs.plan.spared_cells import (
    SAME_CODE_AS,
    SAME_PROGRAM,
    Known,
    carrying_over,
    copy_for,
    find_duplicates,
    known_cells,
    plan_work,
    program_key,
    tuning_key,
)
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.factories import ENVIRONMENT, cell, failing, header, passing, write_bundle


@pytest.mark.parametrize(
    ("one", "other", "device", "is_same", "why"),
    [
        ("cudagraphs", "reduce-overhead", "cuda", True, "two names"),
        ("max_autotune", "max-autotune-no-cudagraphs", "cpu", True, "two names"),
        ("freezing", "default+freezing=true", "cpu", True, "a name and its option"),
        ("cudagraphs+dynamic=true", "reduce-overhead+dynamic=true", "cuda", True, "two names with an option"),
        ("triton", "default", "cpu", False, "the A/A pair"),
        ("triton+dynamic=true", "default+dynamic=true", "cuda", False, "the A/A pair of dynamic shapes"),
        ("triton", "cudagraphs", "cuda", False, "another program"),
        ("default", "cudagraphs", "cpu", False, "one program, but only the first is available on a CPU"),
        ("default", "default+dynamic=false", "cuda", False, "dynamic"),
        ("default", "default+fullgraph", "cuda", False, "fullgraph"),
        ("default", "default+compile_threads=1", "cuda", False, "one program, compiled in another time"),
        ("default", "default+backend=eager", "cpu", False, "another back-end"),
    ],
)
def test_names_of_one_program_are_duplicates_and_what_looks_alike_is_not(one, other, device, is_same, why):
    assert (program_key(parse_config(one), device) == program_key(parse_config(other), device)) is is_same, why


BERT = [cell("bert", Config(mode=name)) for name in ("a1", "b1", "a2", "a3")]


@pytest.fixture
def work(monkeypatch):
    """Plans the work of cells; modes that begin with one letter are one program."""
    monkeypatch.setattr("jobs.plan.spared_cells.program_key", lambda config, device: f"{config.mode[0]}{device}")
    return lambda planned, done=(), again=(): plan_work(planned, {item.cell.cell_id: item for item in done}, again)


def test_cells_that_differ_in_more_than_the_config_are_no_duplicates(work):
    others = [{"model": "gpt2"}, {"phase": Phase.TRAINING}, {"dtype": "amp"}, {"device": "cpu"}, {"batch_size": 9}]
    assert find_duplicates([BERT[0], *(replace(BERT[2], **change) for change in others)]) == {}


def test_a_cell_that_is_measured_again_takes_its_duplicates_along(work):
    crashed = failing(BERT[0], Status.CRASHED)
    copy = copy_for(BERT[2], crashed)
    assert copy.details == {**crashed.details, SAME_PROGRAM: "a1"}
    assert replace(copy, cell=BERT[0], details=crashed.details) == crashed
    assert SAME_PROGRAM not in crashed.details
    done = [crashed, passing(BERT[1]), copy, copy_for(BERT[3], crashed)]
    found = work(BERT, done, [item.cell.cell_id for item in done if item.status is Status.CRASHED])
    assert (found.cells, found.copies) == ([BERT[0]], [])
    assert found.duplicates == {BERT[0].cell_id: BERT[2:]}


def test_whatever_is_recorded_the_work_ends_with_every_cell_named_once(work):
    rng = random.Random(3)
    planned = [cell(model, Config(mode=f"{letter}{n}")) for n in range(3) for letter in "abc" for model in ("m", "n")]
    for _ in range(50):
        whole = work(planned)
        lines = []
        for first in whole.cells:
            found = passing(first)
            lines += [found, *(copy_for(other, found) for other in whole.duplicates.get(first.cell_id, []))]
        done = lines[: rng.randint(0, len(lines))]
        left = work(planned, done)
        after = [item.cell.cell_id for item in [*done, *left.copies]]
        after += [item.cell_id for first in left.cells for item in [first, *left.duplicates.get(first.cell_id, [])]]
        assert sorted(after) == sorted(item.cell_id for item in planned)
        assert left.total == len(planned) - len(done)


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


def known(folder, *nights, requested=REQUESTED, **changes):
    """What is known by these measurements, one a night, the oldest first: r0, r1, ..., and by what the folder has."""
    for number, item in enumerate(nights):
        write_bundle(folder, header(f"r{number}", minutes=number, **ALIKE | changes), [item])
    return known_cells(folder, TONIGHT, requested)


def test_a_cell_is_known_by_the_newest_night_that_measured_it_whole(tmp_path):
    assert known(tmp_path, measured(), carried(), carried()) == {CELL.cell_id: Known("r0", CODE)}
    later = known(tmp_path / "later", measured(), measured(code_id="0ther"))[CELL.cell_id]
    assert later.night == "r1"
    assert later.code != CODE


@pytest.mark.parametrize(("nights", "is_known"), [(6, True), (7, False)])
def test_a_cell_is_carried_over_for_so_many_nights_and_then_measured_again(tmp_path, nights, is_known):
    assert bool(known(tmp_path, measured(), *[carried()] * nights)) is is_known
    fewer = replace(REQUESTED, execution=ExecutionOptions(carried_nights=nights - 1))
    assert known(tmp_path, requested=fewer) == {}


def test_a_model_whose_eager_form_is_unsteady_is_carried_over_as_such(tmp_path):
    failure = Failure(Stage.CORRECTNESS, "IllConditioned", "eager's own outputs jump")
    (one,) = known(tmp_path, measured(status=Status.ILL_CONDITIONED, failure=failure)).values()
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
    assert known(tmp_path, measured(), newest) == {}


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
    assert known(tmp_path / "alike", measured())
    assert known(tmp_path / "other", measured(), **changes) == {}


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

    def of(name):
        return replace(REQUESTED, execution=ExecutionOptions(carried_nights=7, overlay=str(name)))

    def is_known(name):
        return bool(known(tmp_path / "runs", requested=of(name)))

    known(tmp_path / "runs", measured(), asked=of(before).to_json())
    assert is_known(before)
    assert is_known(overlay(tmp_path / "generates", wheel, ir=b"2", runtime__hints=b"1", new=b""))
    assert not is_known(overlay(tmp_path / "acts", wheel, ir=b"1", runtime__hints=b"2"))
    assert not is_known(overlay(tmp_path / "less", wheel, ir=b"1"))
    assert not is_known("")  # the wheel itself
    (tmp_path / "acts" / "torch" / "_inductor" / "runtime" / "hints.py").unlink()
    assert not is_known(tmp_path / "acts")
    Path(before).rename(tmp_path / "gone")
    assert not is_known(tmp_path / "generates")


def test_tuning_is_shared_beside_the_bundles_unless_a_folder_is_named(tmp_path, monkeypatch):
    requested = carrying_over(RequestedOptions(), 3, tmp_path / "runs")
    assert requested.execution.carried_nights == 3
    assert requested.settings.shared_tuning == str(tmp_path / "runs" / "tuning")
    named = carrying_over(RequestedOptions(Settings(shared_tuning="/mine")), 3, tmp_path)
    assert named.settings.shared_tuning == "/mine"
    assert RequestedOptions.from_json(named.to_json()) == named
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
