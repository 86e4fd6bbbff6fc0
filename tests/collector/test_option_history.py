"""The table of options that moved, held against the installed torch, and what it says of others."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config as inductor_config

from collector.templates import (
    CAME,
    NEW_SECTION,
    OLD_SECTION,
    SPLIT,
    STOPPED,
    living_name,
    resolve,
    version_of,
    why_ignored,
    why_unknown,
)
from collector.usage_errors import ConfigError

KNOWN = inductor_config.get_config_copy()
HERE = version_of(torch.__version__)
OLD, NEW = OLD_SECTION + "op_allowlist_regex", NEW_SECTION + "op_allowlist_regex"


@pytest.mark.parametrize(("option", "since"), CAME.items())
def test_an_option_that_came_is_there_from_then_on(option, since):
    assert any(key.startswith(option) for key in KNOWN) == (since <= HERE)


@pytest.mark.parametrize(("option", "since", "instead"), [(key, *stopped) for key, stopped in STOPPED.items()])
def test_an_option_that_stopped_names_what_to_use_instead(option, since, instead):
    if since > HERE:
        pytest.skip(f"it stops in {since}, this is torch {torch.__version__}")
    assert instead in why_ignored(option, HERE)
    assert instead in why_unknown(option, HERE)


def test_the_section_that_moved_is_read_under_its_living_name():
    assert living_name(OLD, {OLD, NEW}) == living_name(NEW, {OLD, NEW}) == NEW
    assert living_name(NEW, {OLD}) == living_name(OLD, {OLD}) == OLD
    if HERE >= SPLIT:
        assert resolve(overrides={OLD: "pingpong"}).options == {NEW: "pingpong"}


def test_an_option_of_a_later_torch_says_since_when():
    assert why_unknown("cudagraph_policy", (2, 11)) == "it is new in torch 2.12"
    assert why_unknown("cudagraph_policy", (2, 12)) is None
    assert why_unknown(NEW, (2, 10)) == "it is new in torch 2.11"


@pytest.mark.skipif(HERE < (2, 9), reason="it still is an option")
def test_an_option_that_is_gone_names_the_way_out():
    with pytest.raises(ConfigError, match="TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"):
        resolve(overrides={"force_disable_caches": True})


def test_an_option_that_torch_ignores_is_told_with_the_effective_config():
    found = resolve(overrides={"autotune_fallback_to_aten": True, "max_autotune": True})
    assert set(found.ignored) == ({"autotune_fallback_to_aten"} if HERE >= (2, 8) else set())
    assert "2.8" in why_ignored("graph_partition", (2, 7))
    assert why_ignored("graph_partition", (2, 8)) is None
