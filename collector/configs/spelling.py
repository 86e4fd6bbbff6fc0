"""Configs as people type them: `cudagraphs+graph_partition=false`."""

from __future__ import annotations

import json
import math
from typing import Any

from collector.configs.templates import TEMPLATES
from collector.errors import ConfigError
from collector.vocabulary import SWITCHES, Config, OptionValue


def parse_config(text: str) -> Config:
    """Reads `Config.name` back: a template or a mode, then `key=value` overrides, joined by `+`.

    A bare word is a template if one has that name, else a mode; whether torch knows the mode is checked when it is
    resolved. `dynamic=true` is the former name of `dynamic_all`. Raises `ConfigError` for an empty part, or two templates
    or modes.
    """
    template: str | None = None
    mode: str | None = None
    named: dict[str, OptionValue] = {}
    switches: dict[str, Any] = {}
    for part in text.split("+"):
        key, equals, value = part.strip().partition("=")
        if not key:
            raise ConfigError(f"config {text!r} has an empty part: write NAME+key=value")
        if equals:
            named[key] = parse_value(value)
        elif key in SWITCHES:
            _turn_on(switches, key, text)
        elif key in TEMPLATES and template is None:
            template = key
        elif key not in TEMPLATES and mode is None:
            mode = key
        else:
            raise ConfigError(f"config {text!r} names two templates or two modes: join overrides as key=value")
    if "dynamic" in named and "dynamic" in switches:
        raise ConfigError(f"config {text!r} says twice what is dynamic: leave out one")
    return Config(
        backend=str(named.pop("backend", "inductor")),
        template=template,
        mode=mode,
        freezing=_switch(named, "freezing"),
        **{"dynamic": _switch(named, "dynamic"), **switches},
        overrides=named,
    )


def _turn_on(switches: dict[str, Any], word: str, text: str) -> None:
    name, value = SWITCHES[word]
    if switches.setdefault(name, value) != value:
        raise ConfigError(f"config {text!r} has dynamic and dynamic_all: leave out one")


def parse_value(text: str) -> OptionValue:
    """`true`, `false`, `null` and numbers as such, everything else as a string."""
    word = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        value = json.loads(word)
    except ValueError:
        return text
    if isinstance(value, float) and not math.isfinite(value):
        return text  # no option is infinite, and JSON, in which a config is stored, knows no such number
    return value if value is None or isinstance(value, bool | int | float | str) else text


def _switch(named: dict[str, Any], key: str) -> bool | None:
    value = named.pop(key, None)
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"{key} is true or false, not {value!r}")
