"""Configs as people type them, and the check that this machine and this torch have the components that a config needs."""

from __future__ import annotations

import base64
import importlib
import json
import math
import shutil
from collections.abc import Mapping
from typing import Any

from collector.device import device_named, is_accelerator
from collector.hud_configs import PREFIX, hud_config
from collector.templates import TEMPLATES, Effective
from collector.usage_errors import ConfigError, UnavailableError
from collector.vocabulary import AHEAD_OF_TIME, SWITCHES, Config, OptionValue, Phase


def parse_config(text: str) -> Config:
    """Parse a config's name: a template or a mode, then `key=value` overrides, joined by `+`. The inverse of `Config.name`.

    A bare word is a template if one has that name, else a mode; `resolve_config` checks later that torch knows the mode.
    `dynamic=true` is the former name of `dynamic_all`. `graphnet_config` reads a JSON object, plain or in base64, and
    `hud_config` reads `hud:NAME`. Raises `ConfigError` for an empty part, or two templates or modes.
    """
    if text.strip().startswith(PREFIX):
        return hud_config(text.strip())
    if (data := _json_object(text.strip())) is not None:
        return graphnet_config(data)
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
        raise ConfigError(f"config {text!r} has two of dynamic, dynamic_batch and dynamic_all: leave out one")


def parse_value(text: str) -> OptionValue:
    """Return `true`, `false`, `null` and numbers as Python values, and everything else as a string."""
    word = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        value = json.loads(word)
    except ValueError:
        return text
    if isinstance(value, float) and not math.isfinite(value):
        return text  # no option is infinite, and JSON, in which a config is stored, knows no such number
    return value if value is None or isinstance(value, bool | int | float | str) else text


def graphnet_config(data: Mapping[str, Any]) -> Config:
    """Convert the JSON config of GraphNet's Inductor back-end to a config (PaddlePaddle/GraphNet#688).

    Keys: `fullgraph`, `dynamic`, and at most one of `graph_net_inductor_config_template` (the name of a template in
    `TEMPLATES`), `mode` and `options`. Raises `ConfigError` for another key, a value of the wrong kind, or more than one of
    these three.
    """
    known = ("graph_net_inductor_config_template", "mode", "options", "fullgraph", "dynamic")
    if unknown := sorted(set(data) - set(known)):
        raise ConfigError(f"a GraphNet config has no key {', '.join(map(repr, unknown))}: known are {', '.join(known)}")
    template, mode, options = (data.get(name) for name in known[:3])
    if sum(item is not None for item in (template, mode, options)) > 1:
        raise ConfigError(f"a GraphNet config has one of {', '.join(known[:3])}, not several")
    if template is not None and template not in TEMPLATES:
        raise ConfigError(f"unknown template {template!r}: known are {', '.join(TEMPLATES)}")
    if mode is not None and not isinstance(mode, str):
        raise ConfigError(f"mode is a name, not {mode!r}")
    if options is not None and not (isinstance(options, dict) and all(map(_is_plain, options.values()))):
        raise ConfigError(f"options are an object of plain values, not {options!r}")
    switches = dict(data)
    return Config(
        template=template,
        mode=mode,
        overrides=dict(options or {}),
        dynamic=_switch(switches, "dynamic"),
        fullgraph=bool(_switch(switches, "fullgraph")),
    )


def _json_object(text: str) -> dict[str, Any] | None:
    """Parse a text that is a JSON object, plain or in base64; return None if it is neither."""
    try:
        data = json.loads(text if text.startswith("{") else base64.b64decode(text, validate=True))
    except (ValueError, RecursionError):  # binascii.Error and UnicodeDecodeError are ValueErrors
        return None
    return data if isinstance(data, dict) else None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _switch(named: dict[str, Any], key: str) -> bool | None:
    value = named.pop(key, None)
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"{key} is true or false, not {value!r}")


#: Modules of torch with the function that looks for CUTLASS: since 2.11, and before.
_CUTLASS_MODULES = ("torch._inductor.codegen.cutlass.utils", "torch._inductor.codegen.cuda.cutlass_utils")


def check_availability(effective: Effective, device: str, phase: Phase, dtype: str) -> None:
    """Raise `UnavailableError` if a component is missing, and `ConfigError` if the options contradict the cell."""
    options = effective.options
    if effective.config.backend == AHEAD_OF_TIME:
        from collector.measure.ahead_of_time import check_ahead_of_time

        check_ahead_of_time(options, effective.config.dynamic, phase)
    if options.get("freezing") and phase is Phase.TRAINING:
        raise ConfigError(
            "freezing inlines weights as constants and cannot act while gradients are wanted: use inference"
        )
    if options and device == "cpu" and not effective.changed and effective.inert:
        raise UnavailableError(
            f"{', '.join(sorted(effective.inert))} act on a GPU only: on a CPU this is the default program"
        )
    if options.get("triton.enable_persistent_tma_matmul"):
        _check_tma(device)
    if "CUTLASS" in str(options.get("max_autotune_gemm_backends", "")).upper():
        _check_cutlass(device, dtype)


def _check_tma(device: str) -> None:
    capability = device_named(device).capability()
    if capability is None:
        raise UnavailableError("TMA needs an NVIDIA GPU of compute capability 9.0 or newer")
    if capability < (9, 0):
        raise UnavailableError(
            f"TMA needs compute capability 9.0 or newer, this GPU has {capability[0]}.{capability[1]}"
        )
    triton: Any = importlib.import_module("torch.utils._triton")
    probe = getattr(triton, "has_triton_tma_device", None) or getattr(triton, "has_triton_tma", None)
    if probe is None or not probe():
        raise UnavailableError("the installed Triton has no TMA descriptors: update triton")


def _check_cutlass(device: str, dtype: str) -> None:
    if not is_accelerator(device):
        raise UnavailableError("CUTLASS needs an NVIDIA GPU")
    if shutil.which("nvcc") is None:
        raise UnavailableError("CUTLASS kernels are built with nvcc, which is not on the PATH")
    if not _try_import_cutlass():
        raise UnavailableError(
            "no CUTLASS checkout found: set TORCHINDUCTOR_CUTLASS_DIR to one (python/cutlass_library in it)"
        )
    if dtype == "float32":
        raise UnavailableError("Inductor's CUTLASS back-end takes bfloat16 and float16, not float32")


def _try_import_cutlass() -> bool:
    for name in _CUTLASS_MODULES:
        try:
            return bool(importlib.import_module(name).try_import_cutlass())
        except (ImportError, AttributeError):
            continue
    return False
