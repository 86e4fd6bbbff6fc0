"""What templates, modes and overrides ask for, and what the installed torch makes of it."""

from __future__ import annotations

import shutil

import pytest
from torch._inductor import config as inductor_config

from collector.configs import check_availability as check
from collector.templates import TEMPLATES, resolve, resolve_config
from collector.usage_errors import ConfigError, UnavailableError
from collector.vocabulary import Config, Phase


def test_each_template_is_a_program_of_its_own():
    assert len({resolve(name, device="cuda").program_id for name in TEMPLATES}) == len(TEMPLATES)


@pytest.mark.parametrize(
    ("template", "mode"),
    [
        (None, "default"),
        ("triton", "default"),
        ("cudagraphs", "reduce-overhead"),
        ("max_autotune", "max-autotune-no-cudagraphs"),
    ],
)
def test_a_template_equals_the_mode_that_its_note_names(template, mode):
    assert resolve(template, device="cuda").program_id == resolve(mode=mode, device="cuda").program_id


@pytest.mark.parametrize(
    ("request_", "key", "value"),
    [
        ({"mode": "max-autotune", "template": "aten"}, "max_autotune_gemm_backends", "ATEN"),
        ({"mode": "max-autotune", "template": "aten"}, "triton.cudagraphs", True),
        ({"template": "freezing"}, "freezing", True),
        ({"template": "freezing", "freezing": False}, "freezing", False),
        ({"template": "triton", "freezing": True}, "freezing", True),
        ({"template": "freezing", "freezing": False, "overrides": {"freezing": True}}, "freezing", True),
        ({"template": "cudagraphs", "overrides": {"triton.cudagraphs": False}}, "triton.cudagraphs", False),
        ({"mode": "reduce-overhead", "overrides": {"triton.cudagraphs": False}}, "triton.cudagraphs", False),
        ({"overrides": {"max-autotune": True}}, "max_autotune", True),
    ],
)
def test_overrides_win_over_freezing_over_the_template_over_the_mode(request_, key, value):
    effective = resolve(**request_)
    assert effective.options[key] == value
    assert effective.program[key] == value


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"template": "cudagraph"}, "cudagraphs"),
        ({"mode": "reduce-overhed"}, "reduce-overhead"),
        ({"mode": "cudagraph"}, "cudagraphs"),
        ({"overrides": {"cudagraphs": True}}, "triton.cudagraphs"),
        ({"overrides": {"max_autotun": True}}, "max_autotune"),
        ({"overrides": {"triton.cudagraphs": "on"}}, "triton.cudagraphs"),
    ],
)
def test_an_unknown_name_or_wrong_type_is_one_line_that_names_the_nearest(request_, named):
    with pytest.raises(ConfigError) as caught:
        resolve(**request_)
    text = str(caught.value)
    assert named in text
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize("name", ["cudagraphs", "tma", "cutlass"])
def test_what_a_cpu_cannot_do_is_unavailable_with_the_reason(name):
    with pytest.raises(UnavailableError, match="GPU"):
        check(resolve(name, device="cpu"), "cpu", Phase.INFERENCE, "float32")


@pytest.mark.parametrize("name", ["triton", "cpp_wrapper", "aten", "max_autotune", "freezing"])
def test_what_a_cpu_can_do_passes_the_check(name):
    effective = resolve(name, device="cpu")
    assert check(effective, "cpu", Phase.INFERENCE, "float32") is None
    assert not any(key.startswith(("triton.", "cuda.")) for key in effective.program)


def test_freezing_a_training_step_is_refused():
    with pytest.raises(ConfigError, match="inference"):
        check(resolve("freezing"), "cuda", Phase.TRAINING, "bfloat16")


@pytest.mark.skipif(shutil.which("nvcc") is not None, reason="nvcc is installed here")
def test_cutlass_without_nvcc_is_unavailable_and_says_so():
    with pytest.raises(UnavailableError, match="nvcc"):
        check(resolve("cutlass"), "cuda", Phase.INFERENCE, "bfloat16")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(), "44136fa355b3"),
        (Config(template="triton"), "264ea7452d8c"),
        (Config(template="cudagraphs"), "38ff6fe7bec7"),
        (Config(mode="default"), "44136fa355b3"),
    ],
)
def test_the_id_of_a_request_never_changes(config, expected):
    assert config.config_id == expected


def test_resolving_leaves_no_trace_in_torchs_own_config():
    before = inductor_config.get_config_copy()
    for name in TEMPLATES:
        resolve(name, mode="max-autotune", overrides={"shape_padding": False}, freezing=True, device="cuda")
    with pytest.raises(ConfigError):
        resolve_config(Config(template="max_autotune", overrides={"shape_padding": "maybe"}), "cuda")
    assert inductor_config.get_config_copy() == before
