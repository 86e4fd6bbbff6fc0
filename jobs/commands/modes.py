"""`inductor-watch modes`: the modes of the installed torch."""

from __future__ import annotations

import click

from jobs.options import device_option, json_option
from jobs.output.listing import list_configs


@click.command(help="The modes of the installed torch: effective options, config_id and program_id.")
@device_option
@json_option
def command(device: str | None, as_json: bool) -> None:
    """Lists the modes; equal programs show the same program_id."""
    from jobs.plan.planning import mode_configs

    list_configs(mode_configs(), device, as_json, {})
