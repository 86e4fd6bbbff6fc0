"""Which cells hold the device while they compile: real configs of the installed torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collector.configs.templates import TEMPLATES, modes
from collector.vocabulary import Config
from jobs.plan.planning import tunes
from tests.factories import cell

TUNED_TEMPLATES = {"cutlass", "aten", "max_autotune", "tma"}


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_templates_that_tune(template, device):
    assert tunes(cell(config=Config(template=template), device=device)) is (template in TUNED_TEMPLATES)


@pytest.mark.parametrize("mode", sorted(modes()))
def test_modes_that_tune(mode):
    assert tunes(cell(config=Config(mode=mode))) is mode.startswith("max-autotune")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(), False),
        (Config(overrides={"max_autotune": True}), True),
        (Config(overrides={"max-autotune-gemm": True}), True),
        (Config(overrides={"max_autotune_pointwise": True}), True),
        (Config(overrides={"coordinate_descent_tuning": True}), True),
        (Config(mode="max-autotune", overrides={"max_autotune": False, "coordinate_descent_tuning": False}), False),
        (Config(overrides={"max_autotune_gemm_backends": "TRITON"}), False),
        # These end before they compile, or compile without Inductor.
        (Config(template="max_autotun"), False),
        (Config(overrides={"max_autotune": "perhaps"}), False),
        (Config(template="max_autotune", backend="eager"), False),
    ],
)
def test_overrides_count_and_what_cannot_be_compiled_does_not(config, expected):
    assert tunes(cell(config=config)) is expected


def test_coordinate_descent_tunes_no_cpu():
    config = Config(overrides={"coordinate_descent_tuning": True})
    assert not tunes(cell(config=config, device="cpu"))


@pytest.mark.slow
def test_a_variable_that_has_torch_tune_everything_counts():
    ask = "from jobs.plan.planning import tunes; from tests.factories import cell; print(tunes(cell()))"
    environ = {**os.environ, "TORCHINDUCTOR_MAX_AUTOTUNE": "1"}
    done = subprocess.run([sys.executable, "-c", ask], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
