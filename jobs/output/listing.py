"""Prints configs with the programs the installed torch makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from collector.configs import availability
from collector.configs.templates import Effective, resolve_config
from collector.errors import ConfigError, UnavailableError
from collector.vocabulary import Config, Phase


def list_configs(configs: list[Config], device: str | None, as_json: bool, notes: Mapping[str, str]) -> None:
    """Prints each config's ids and changed options; names those that ask for one program, and what is missing here."""
    place = device or _default_device()
    rows = [_row(resolve_config(config, place), place, notes.get(config.name, "")) for config in configs]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        twins = [other["name"] for other in rows if other["program_id"] == row["program_id"] and other is not row]
        same = f"  same program as {', '.join(twins)}" if twins else ""
        click.echo(f"{row['name']:<28} config {row['config_id']}  program {row['program_id']}{same}")
        if row["changed"]:
            click.echo("    " + ", ".join(f"{key}={value}" for key, value in row["changed"].items()))
        if row["note"]:
            click.echo(f"    {row['note']}")
        if row["unavailable"]:
            click.echo(f"    unavailable here: {row['unavailable']}")


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _row(effective: Effective, device: str, note: str) -> dict[str, Any]:
    return {
        "name": effective.config.name,
        "config_id": effective.config.config_id,
        "program_id": effective.program_id,
        "options": effective.options,
        "changed": effective.changed,
        "inert": effective.inert,
        "note": note,
        "unavailable": _missing(effective, device),
    }


def _missing(effective: Effective, device: str) -> str | None:
    # Judged for what the template is meant for: a forward pass in the dtype that its kernels take.
    try:
        availability.check(effective, device, Phase.INFERENCE, "bfloat16")
    except (UnavailableError, ConfigError) as error:
        return str(error)
    return None
