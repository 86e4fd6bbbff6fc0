"""From a selection to a plan: every cell that a run is expected to measure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from collector.configs.templates import TEMPLATES, resolve_config
from collector.errors import ConfigError
from collector.vocabulary import AHEAD_OF_TIME, Cell, Config, Phase
from collector.zoo.registry import find, select
from collector.zoo.spec import ModelSpec
from jobs.pool.requested_options import ExtraMeasurements

#: Inductor's options that make it time candidates for matrix products and convolutions, or for every kernel.
_TUNING_OPTIONS = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


class PlanError(ConfigError):
    """A file that holds no plan."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What to measure: models by suite, name pattern and tag, each under every config, in every phase.

    Empty `suites` and `models` mean all that is installed. `batch_size` replaces every model's own.
    """

    device: str
    dtype: str
    configs: Sequence[Config]
    suites: Sequence[str] = ()
    models: Sequence[str] = ()
    tags: Sequence[str] = ()
    phases: Sequence[Phase] = (Phase.INFERENCE,)
    batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells of a run in the order of measuring, and what was left out with the reason, one line each.

    A plan from a file may have the `night` that it is a part of, and `extra` measurements.
    """

    cells: list[Cell]
    left_out: list[str] = field(default_factory=list)
    night: str = ""
    extra: ExtraMeasurements = field(default_factory=ExtraMeasurements)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `load_plan` reads it back."""
        return {"cells": [cell.to_json() for cell in self.cells], **self.measure_json(), "left_out": self.left_out}

    def measure_json(self) -> dict[str, Any]:
        """The entry of a plan's file for extra measurements; empty where there are none."""
        extra = self.extra.to_json()
        return {"measure": extra} if extra else {}


def make_plan(matrix: Matrix) -> Plan:
    """Every cell of a matrix; models whose libraries are not installed are left out and named.

    Raises:
        ZooError: no such suite or model.
        ConfigError: an unknown template, mode or key.
    """
    for config in matrix.configs:
        check_config(config, matrix.device)
    specs = select(in_suites=matrix.suites, patterns=matrix.models, tagged=matrix.tags)
    reasons = {spec: _unfit(spec, matrix) for spec in specs}
    fitting = [spec for spec, reason in reasons.items() if reason is None]
    # Config by config, so that a run that ends early has measured its first configs on every model.
    cells = [cell for config in matrix.configs for spec in fitting for cell in _cells(spec, matrix, config)]
    return Plan(cells, [f"{spec}: {reason}" for spec, reason in reasons.items() if reason])


def read_plan(path: Path, device: str) -> Plan:
    """The plan in a file, as `inductor-watch plan --json` writes it; only its `cells` are needed.

    Raises:
        PlanError: no such plan in the file, a cell for another than this `device`, or one that the installed zoo or
            torch does not know.
    """
    plan = load_plan(path)
    for cell in plan.cells:
        find(cell.suite, cell.model)
    if others := sorted({cell.device for cell in plan.cells} - {device}):
        raise PlanError(
            f"{path} plans cells for {', '.join(others)}, and this run measures on {device}: choose with --device"
        )
    for config in {cell.config for cell in plan.cells}:
        check_config(config, device)
    return plan


def load_plan(path: Path) -> Plan:
    """The plan in a file as it stands, on a host that may have neither torch nor the models.

    Raises:
        PlanError: no such plan in the file.
    """
    try:
        data = json.loads(path.read_text())
        extra = ExtraMeasurements.from_json(data.get("measure") or {})
        return Plan([Cell.from_json(cell) for cell in data["cells"]], night=str(data.get("night") or ""), extra=extra)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise PlanError(f"{path} holds no plan ({error}): write one with `inductor-watch plan --json`") from error


def check_config(config: Config, device: str) -> None:
    """Raises `ConfigError` if the installed torch does not know a template, a mode, a key or a back-end of the config."""
    if config.is_inductors:
        effective = resolve_config(config, device)
        if config.backend == AHEAD_OF_TIME:
            from collector.measure.ahead_of_time import check_ahead_of_time

            check_ahead_of_time(effective.options, config.dynamic)
        return
    from torch._dynamo.backends.registry import list_backends

    known = [*list_backends(exclude_tags=()), AHEAD_OF_TIME]
    if config.backend not in known:
        raise ConfigError(f"unknown backend {config.backend!r}: known are {', '.join(known)}")
    if config.template or config.mode or config.overrides or config.freezing is not None:
        raise ConfigError(f"backend {config.backend} takes no Inductor options: leave out template, mode and overrides")


def tunes(cell: Cell) -> bool:
    """Whether a cell's config times candidates while it compiles; it then holds the device meanwhile."""
    return cell.config.is_inductors and _tunes(cell.config, cell.device)


@cache
def _tunes(config: Config, device: str) -> bool:
    try:
        program = resolve_config(config, device).program  # not only the request: variables set such options too
    except ConfigError:
        return False  # it ends before it compiles
    return any(program.get(name) for name in _TUNING_OPTIONS)


def template_configs() -> list[Config]:
    """One config a template, in the order of the templates."""
    return [Config(template=name) for name in TEMPLATES]


def mode_configs() -> list[Config]:
    """One config a mode of the installed torch."""
    from collector.configs.templates import modes

    return [Config(mode=name) for name in modes()]


def _unfit(spec: ModelSpec, matrix: Matrix) -> str | None:
    if missing := spec.missing():
        return f"needs {', '.join(missing)}, not installed"
    if spec.dtypes and matrix.dtype not in spec.dtypes:
        return f"runs in {', '.join(spec.dtypes)}, not in {matrix.dtype}"
    if not _phases(spec, matrix):
        return f"not measured on {matrix.device} in {', '.join(matrix.phases)}"
    return None


def _phases(spec: ModelSpec, matrix: Matrix) -> list[Phase]:
    return [phase for phase in matrix.phases if spec.supports(phase, matrix.device)]


def _cells(spec: ModelSpec, matrix: Matrix, config: Config) -> Iterable[Cell]:
    for phase in _phases(spec, matrix):
        batch_size = matrix.batch_size or spec.batch_size(phase, matrix.device)
        yield Cell(spec.suite, spec.name, phase, matrix.dtype, matrix.device, batch_size, config)
