"""How the options of a verb become configs and phases."""

from __future__ import annotations

import click
import pytest

from collector.errors import ConfigError
from collector.vocabulary import Config
from jobs.options import build_configs

NOTHING = {
    "configs": (),
    "template": None,
    "mode": None,
    "overrides": (),
    "freezing": None,
    "dynamic": None,
    "fullgraph": False,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [Config()]),
        ({"template": "aten"}, [Config(template="aten")]),
        ({"mode": "max-autotune", "fullgraph": True}, [Config(mode="max-autotune", fullgraph=True)]),
        (
            {"overrides": ("triton.cudagraphs=true", "a=b=c")},
            [Config(overrides={"triton.cudagraphs": True, "a": "b=c"})],
        ),
        ({"freezing": False, "dynamic": True}, [Config(freezing=False, dynamic=True)]),
        ({"configs": ("triton", "max-autotune")}, [Config(template="triton"), Config(mode="max-autotune")]),
    ],
)
def test_options_spell_configs(given, expected):
    assert build_configs(**NOTHING | given) == expected


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"configs": ("triton",), "template": "aten"}, click.UsageError, "not both"),
        ({"configs": ("triton",), "overrides": ("a=1",)}, click.UsageError, "not both"),
        ({"configs": ("triton",), "fullgraph": True}, click.UsageError, "not both"),
        ({"configs": ("triton",), "freezing": False}, click.UsageError, "not both"),
        ({"overrides": ("novalue",)}, click.UsageError, "KEY=VALUE"),
        ({"overrides": ("=1",)}, click.UsageError, "KEY=VALUE"),
        ({"configs": ("",)}, ConfigError, "empty part"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given, error, said):
    with pytest.raises(error, match=said):
        build_configs(**NOTHING | given)
