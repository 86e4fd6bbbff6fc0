"""Which cell a row is about: from the JSON where it tells, else from the file's name, else from what the caller says."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from collector.vocabulary import Config, Phase
from db.errors import in_words
from db.importing.configs import config_of
from db.importing.filenames import FileName, parse_name
from db.importing.own_records import REQUEST
from db.importing.rows import Row, Target

#: What a record that says nothing of it has: PyTorch's dashboard has the same word for it.
NOT_SET = "notset"
_PHASES = frozenset(phase.value for phase in Phase)
_DEVICES = {"rocm": "cuda", "hip": "cuda"}


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of rows that do not say it themselves."""

    suite: str | None = None
    phase: str | None = None
    dtype: str | None = None
    device: str | None = None
    config: Config | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A cell but for its batch size, which a failed row does not tell; and the testbed as far as it is known."""

    suite: str
    model: str
    phase: Phase
    dtype: str
    device: str
    config: Config
    accelerator: str = field(default="", compare=False)


def identify(row: Row, given: Given) -> Identity | str:
    """The cell of a row, or what is missing, in words."""
    # The JSON of a side file names the table that it lies beside.
    written = row.arguments.get("output")
    name = parse_name(row.source.stem)
    if not name.suite and isinstance(written, str):
        name = parse_name(written.rpartition("/")[2].removesuffix(".csv"))
    is_record = row.kind.benchmark is not None or row.target is Target.GRAPHNET
    fallback = NOT_SET if is_record else None
    suite = row.kind.suite or name.suite or given.suite or (row.kind.benchmark if is_record else None)
    phase = (
        _phase(row.kind.mode) or _phase(name.mode) or _phase(given.phase) or (Phase.INFERENCE if is_record else None)
    )
    dtype = row.kind.dtype or name.dtype or given.dtype or fallback
    device = row.device or _device(name) or given.device or fallback
    words = {"suite": suite, "phase": phase, "dtype": dtype, "device": device}
    if missing := [word for word, value in words.items() if value is None]:
        options = in_words([f"--{word}" for word in missing], "and")
        return f"no {in_words(missing, 'or')} in the file or its name: pass {options}, or name it as PyTorch's nightly does"
    assert suite and phase and dtype and device  # noqa: S101 - all four were just looked at
    config = given.config if given.config and not name.config and not row.arguments else _config(row, name)
    return Identity(suite, row.model, phase, dtype, device, config, _accelerator(row, name, device))


def _config(row: Row, name: FileName) -> Config:
    if isinstance(own := row.arguments.get(REQUEST), str):
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            return Config.from_json(json.loads(own))
    return config_of(name.config, row.kind.backend, row.arguments)


def _phase(word: str | None) -> Phase | None:
    return Phase(word) if word in _PHASES else None


def _device(name: FileName) -> str | None:
    if not name.device:
        return None
    first = name.device.partition("_")[0]
    return _DEVICES.get(first, first)


def _accelerator(row: Row, name: FileName, device: str) -> str:
    """The device's kind in PyTorch's words (`cuda_h100`, `cpu_x86_zen`), where somebody says it."""
    told: Any = row.arguments.get("arch")
    return name.device or (str(told) if told else "") or device
