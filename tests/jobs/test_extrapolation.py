"""From bundles to a matrix nobody measured: the sums, on synthetic bundles."""

from __future__ import annotations

import pytest

from collector.bundle import BundleError, read_bundle
from collector.vocabulary import Config, Phase, Status, short_hash
from jobs.extrapolation import CPP_WRAPPER, KINDS, TUNED, UNTUNED, Load, kind_of, survey
from jobs.twins import copy_for
from tests.factories import cell, failing, header, passing, write_bundle

PLAIN, CPP, TUNE = Config(template="triton"), Config(template="cpp_wrapper"), Config(template="max_autotune")
PROGRAMS = {
    PLAIN: {"max_autotune": False},
    CPP: {"cpp_wrapper": True},
    TUNE: {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON"},
}
SECONDS = {PLAIN: 20.0, CPP: 40.0, TUNE: 100.0}


def took(config, seconds, model="a", phase=Phase.INFERENCE, held=None):
    details = {"held_s": held} if held else {}
    metrics = {"eager_ms": 30.0, "compiled_ms": 20.0}
    found = passing(cell(model, config, phase=phase), wall_s=seconds, details=details, metrics=metrics)
    found.program_id = short_hash(config.to_json())
    return found


def history(tmp_path, items):
    contents = read_bundle(write_bundle(tmp_path, header("r"), items))
    contents.programs = {short_hash(config.to_json()): program for config, program in PROGRAMS.items()}
    return [contents]


def usual(held=None):
    inference = [took(config, seconds, held=held) for config, seconds in SECONDS.items()]
    return [*inference, took(PLAIN, 30.0, phase=Phase.TRAINING, held=held)]


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ({}, UNTUNED),
        ({"cpp_wrapper": True}, CPP_WRAPPER),
        ({"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON,CPP"}, TUNED),
        ({"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON", "cpp_wrapper": True}, TUNED),
        ({"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}, UNTUNED),
        ({"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN,TRITON"}, TUNED),
        ({"triton.cudagraphs": True}, UNTUNED),
    ],
)
def test_a_configs_kind_is_what_its_program_does(program, kind):
    assert kind_of(program) == kind


def test_training_is_inference_times_what_was_measured_in_both(tmp_path):
    panel = survey(history(tmp_path, usual()))
    assert (panel.models, panel.pairs, panel.training) == (1, 1, (1.5, 1.5, 1.5))
    assert [panel.mean(kind, Phase.INFERENCE).worker_s for kind in KINDS] == [20.0, 40.0, 100.0]
    assert [panel.mean(kind, Phase.TRAINING).worker_s for kind in KINDS] == [30.0, 60.0, 150.0]
    assert panel.mean(TUNED, Phase.INFERENCE).device_s is None
    assert panel.pair_s == pytest.approx(0.05)


def test_a_matrix_is_its_means_times_its_cells(tmp_path):
    total = survey(history(tmp_path, usual(held={"measure": 2.0, "tune": 8.0}))).load((7, 1, 4), 150)
    assert total.worker_s == 150 * 2.5 * (7 * 20 + 40 + 4 * 100)
    assert total.device_s == 150 * 2 * 12 * 10.0  # training held it for as long as inference did
    assert total.measure_s == 150 * 2 * 12 * 2.0


def test_a_config_measured_on_few_models_is_filled_up_for_the_others(tmp_path):
    panel = survey(history(tmp_path, [*usual(), took(PLAIN, 60.0, "b")]))
    assert panel.cells == dict.fromkeys(KINDS, 2)
    assert panel.measured == {UNTUNED: 2, CPP_WRAPPER: 1, TUNED: 1}
    assert panel.mean(TUNED, Phase.INFERENCE).worker_s == (100 + 300) / 2


def test_a_config_that_never_ran_is_of_no_kind(tmp_path):
    missing = failing(cell("a", Config(template="cutlass")), Status.UNAVAILABLE, wall_s=0.5)
    assert survey(history(tmp_path, [*usual(), missing])).cells == dict.fromkeys(KINDS, 1)


def test_a_cell_taken_over_from_another_is_none_of_its_own(tmp_path):
    copies = [copy_for(cell("a", Config(mode="default")), item) for item in usual()[:1]]
    assert survey(history(tmp_path, [*usual(), *copies])).cells == dict.fromkeys(KINDS, 1)


def test_bundles_that_hold_too_little_are_refused(tmp_path):
    with pytest.raises(BundleError, match="no inference under GEMM autotuning"):
        survey(history(tmp_path / "kind", [item for item in usual() if item.cell.config != TUNE]))
    with pytest.raises(BundleError, match="both phases"):
        survey(history(tmp_path / "phase", usual()[:-1]))


def test_hours_are_those_of_the_slower_of_cpu_and_device():
    assert Load(36_000.0, None, 0.0).hours(5) == 2.0
    assert Load(36_000.0, 3_600.0, 3_600.0).hours(5) == pytest.approx(1 + 9 / 5)
    assert Load(36_000.0, 18_000.0, 0.0).hours(5, factor=1.5) == 7.5
    assert Load(1.0, None, 1.0).plus(Load(1.0, 2.0, 1.0)) == Load(2.0, None, 2.0)
