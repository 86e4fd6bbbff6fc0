"""`inductor-watch templates`: what each template asks for, what the installed torch makes of it, what it lacks here."""

from __future__ import annotations

import click

from jobs.options import device_option, json_option
from jobs.output.listing import list_configs


@click.command(help="The eight templates: effective options, config_id, program_id, and what is missing here.")
@device_option
@json_option
def command(device: str | None, as_json: bool) -> None:
    """Lists the templates; equal programs show the same program_id."""
    from collector.configs.templates import TEMPLATES
    from jobs.plan.planning import template_configs

    list_configs(template_configs(), device, as_json, {name: template.note for name, template in TEMPLATES.items()})
