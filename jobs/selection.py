"""Which cells a night consists of: the default night of the device, or what the options narrow it to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from collector.spelling import parse_config
from collector.vocabulary import Phase
from jobs.night import all_configs, default_dtype, join, night_plan
from jobs.options import parse_phases, selection_options
from jobs.plan import Matrix, Plan, make_plan

F = TypeVar("F", bound=Callable[..., Any])


def night_options(function: F) -> F:
    """The options that narrow a night."""
    config = click.option("--config", "configs", multiple=True, metavar="NAME[+key=value...]", help="[the night's own]")
    decorated: F = selection_options(config(function))
    return decorated


def planned_night(
    device: str,
    suites: tuple[str, ...],
    models: tuple[str, ...],
    phases: tuple[str, ...],
    dtype: str | None,
    batch_size: int | None,
    configs: tuple[str, ...],
) -> Plan:
    """The default night if nothing is narrowed, else the matrix that the options spell."""
    if not any((suites, models, phases, dtype, batch_size, configs)):
        return night_plan(device)
    chosen = [parse_config(text) for text in configs] or all_configs()

    def matrix(phase: Phase) -> Matrix:
        return Matrix(device, dtype or default_dtype(device, phase), chosen, suites, models, (), (phase,), batch_size)

    return join(make_plan(matrix(phase)) for phase in parse_phases(phases))
