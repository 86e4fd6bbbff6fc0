"""Configs as people type them: `cudagraphs+graph_partition=false`."""

from __future__ import annotations

import json
import math

from collector.errors import ConfigError
from collector.templates import TEMPLATES
from collector.vocabulary import Config, OptionValue


def parse_config(text: str) -> Config:
    """Reads `Config.name` back: a template or a mode, then `key=value` overrides, joined by `+`.

    A bare word is a template if one has that name, else a mode; whether torch knows the mode is checked when it is
    resolved. `freezing`, `dynamic` and `backend` are fields of their own, every other key is an Inductor option.

    Raises:
        ConfigError: an empty part, or two templates or modes.
    """
    template: str | None = None
    mode: str | None = None
    named: dict[str, OptionValue] = {}
    fullgraph = False
    for part in text.split("+"):
        key, equals, value = part.strip().partition("=")
        if not key:
            raise ConfigError(f"config {text!r} has an empty part: write NAME+key=value")
        if equals:
            named[key] = parse_value(value)
        elif key == "fullgraph":
            fullgraph = True
        elif key in TEMPLATES and template is None:
            template = key
        elif key not in TEMPLATES and mode is None:
            mode = key
        else:
            raise ConfigError(f"config {text!r} names two templates or two modes: join overrides as key=value")
    return Config(
        backend=str(named.pop("backend", "inductor")),
        template=template,
        mode=mode,
        freezing=_switch(named, "freezing"),
        dynamic=_switch(named, "dynamic"),
        fullgraph=fullgraph,
        overrides=named,
    )


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


def _switch(named: dict[str, OptionValue], key: str) -> bool | None:
    value = named.pop(key, None)
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"{key} is true or false, not {value!r}")
