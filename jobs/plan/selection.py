"""Which cells a night consists of: the default night of the device, or what the options narrow it to."""

from __future__ import annotations

import click

from collector.configs.spelling import parse_config
from collector.vocabulary import Config, Phase
from jobs.option_groups import Selection, selection_options, together
from jobs.options import parse_phases
from jobs.plan.default_night import all_configs, default_dtype, join, night_plan
from jobs.plan.planning import Matrix, Plan, make_plan

#: The options that narrow a night.
night_options = together(
    selection_options,
    click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="NAME[+key=value...]",
        help="A config of `templates` or `modes`, with overrides; repeatable [those of the night].",
    ),
)


def planned_night(device: str, selection: Selection, configs: tuple[str, ...]) -> Plan:
    """The default night of a device if nothing is narrowed, else the matrix that the options spell."""
    if not selection.is_narrowed and not configs:
        return night_plan(device)
    chosen = [parse_config(text) for text in configs] or all_configs()
    return selected(device, selection, chosen)


def selected(device: str, selection: Selection, configs: list[Config]) -> Plan:
    """Every cell of a selection under every config, phase by phase."""

    def matrix(phase: Phase) -> Matrix:
        dtype = selection.dtype or default_dtype(device, phase)
        return Matrix(device, dtype, configs, selection.suites, selection.models, (), (phase,), selection.batch_size)

    return join(make_plan(matrix(phase)) for phase in parse_phases(selection.phases))
