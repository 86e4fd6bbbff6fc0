"""What templates, modes and overrides ask for, and what the installed torch makes of it."""

import shutil

import pytest
import torch
from torch._inductor import config as inductor_config

from collector import templates
from collector.configs import check_availability as check
from collector.usage_errors import ConfigError, UnavailableError
from collector.vocabulary import Config, Phase


@pytest.mark.parametrize(
    ("request_", "key", "value"),
    [
        ({"mode": "max-autotune", "template": "aten"}, "triton.cudagraphs", True),
        ({"template": "freezing", "freezing": False}, "freezing", False),
        ({"template": "freezing", "freezing": False, "overrides": {"freezing": True}}, "freezing", True),
        ({"mode": "reduce-overhead", "overrides": {"triton.cudagraphs": False}}, "triton.cudagraphs", False),
        ({"overrides": {"max-autotune": True}}, "max_autotune", True),
    ],
)
def test_overrides_win_over_freezing_over_the_template_over_the_mode(request_, key, value):
    effective = templates.resolve(**request_)
    assert effective.options[key] == value
    assert effective.program[key] == value


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"template": "cudagraph"}, "cudagraphs"),
        ({"mode": "reduce-overhed"}, "reduce-overhead"),
        ({"overrides": {"max_autotun": True}}, "max_autotune"),
        ({"overrides": {"triton.cudagraphs": "on"}}, "triton.cudagraphs"),
    ],
)
def test_an_unknown_name_or_wrong_type_is_one_line_that_names_the_nearest(request_, named):
    with pytest.raises(ConfigError) as caught:
        templates.resolve(**request_)
    text = str(caught.value)
    assert named in text
    assert "\n" not in text
    assert len(text) < 300


def test_what_a_cpu_or_a_training_step_cannot_have_is_refused():
    for name in ("cudagraphs", "tma", "cutlass"):
        with pytest.raises(UnavailableError, match="GPU"):
            check(templates.resolve(name, device="cpu"), "cpu", Phase.INFERENCE, "float32")
    effective = templates.resolve("max_autotune", device="cpu")
    assert check(effective, "cpu", Phase.INFERENCE, "float32") is None
    assert not any(key.startswith(("triton.", "cuda.")) for key in effective.program)
    with pytest.raises(ConfigError, match="inference"):
        check(templates.resolve("freezing"), "cuda", Phase.TRAINING, "bfloat16")


@pytest.mark.skipif(shutil.which("nvcc") is not None, reason="nvcc is installed here")
def test_cutlass_without_nvcc_is_unavailable_and_says_so():
    with pytest.raises(UnavailableError, match="nvcc"):
        check(templates.resolve("cutlass"), "cuda", Phase.INFERENCE, "bfloat16")


def test_the_id_of_a_request_never_changes():
    assert Config(mode="default").config_id == "44136fa355b3"
    assert Config(template="cudagraphs").config_id == "38ff6fe7bec7"
    assert Config(template="triton", dynamic=True).config_id == "648825acaf9d"  # as under its former name


def test_resolving_leaves_no_trace_in_torchs_own_config():
    before = inductor_config.get_config_copy()
    for name in templates.TEMPLATES:
        templates.resolve(name, mode="max-autotune", overrides={"shape_padding": False}, freezing=True, device="cuda")
    with pytest.raises(ConfigError):
        templates.resolve_config(Config(template="max_autotune", overrides={"shape_padding": "maybe"}), "cuda")
    assert inductor_config.get_config_copy() == before


KNOWN = inductor_config.get_config_copy()
HERE = templates.version_of(torch.__version__)
OLD, NEW = templates.OLD_SECTION + "op_allowlist_regex", templates.NEW_SECTION + "op_allowlist_regex"


def test_what_this_and_another_torch_know_is_told_from_the_table():
    for option, since in templates.CAME.items():
        assert any(key.startswith(option) for key in KNOWN) == (since <= HERE)
    for option, (since, instead) in templates.STOPPED.items():
        assert since > HERE or instead in templates.why_ignored(option, HERE)
        assert since > HERE or instead in templates.why_unknown(option, HERE)
    assert templates.living_name(OLD, {OLD, NEW}) == templates.living_name(NEW, {OLD, NEW}) == NEW
    assert templates.living_name(NEW, {OLD}) == templates.living_name(OLD, {OLD}) == OLD
    if HERE >= templates.SPLIT:
        assert templates.resolve(overrides={OLD: "pingpong"}).options == {NEW: "pingpong"}
    found = templates.resolve(overrides={"autotune_fallback_to_aten": True, "max_autotune": True})
    assert set(found.ignored) == ({"autotune_fallback_to_aten"} if HERE >= (2, 8) else set())
