"""`inductor-watch export`: sides as benchmark-v3 JSON, CSV, bundles or Parquet."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from jobs.options import Renamed, db_option, json_option

if TYPE_CHECKING:
    from db.exporting.exporter import Format

_BINARY = ("bundle", "parquet")


@click.command(
    help="Write SIDEs, as `compare` takes them, to a file [latest]. `import` reads v3 files back without loss."
)
@click.argument("sides", nargs=-1, metavar="[SIDE]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["v3", "csv", "bundle", "parquet"]),
    default="v3",
    show_default=True,
    help="PyTorch's benchmark-v3 records, a row a cell, or a bundle a run.",
)
@click.option(
    "-o",
    "--out",
    "output",
    cls=Renamed,
    former=["--output"],
    type=click.Path(path_type=Path, allow_dash=True),
    help="The file, for bundles the folder; - is standard output. [standard output; none for bundle and parquet]",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@db_option
@json_option
def command(sides: tuple[str, ...], form: str, output: Path | None, force: bool, database: str, as_json: bool) -> None:
    """Exports whole runs as v3 and bundle, and the newest measurement of each cell of a side as csv and parquet."""
    from db.engine import open_store
    from db.exporting.exporter import export_sides, write_stream

    to_terminal = output is None or str(output) == "-"
    if to_terminal and form in _BINARY:
        raise click.UsageError(f"{form} is binary: name {'a folder' if form == 'bundle' else 'a file'} with -o")
    sides = sides or ("latest",)
    chosen = cast("Format", form)
    with open_store(database, write=False).connect() as connection:
        if output is None or to_terminal:
            if as_json:
                raise click.UsageError("--json lists the written files: name one with -o")
            write_stream(connection, sides, chosen, sys.stdout.buffer)
            return
        written = export_sides(connection, sides, chosen, output, force)
    if as_json:
        click.echo(json.dumps([asdict(item) for item in written], indent=2))
        return
    for item in written:
        click.echo(f"{item.file}: {item.rows} rows of {', '.join(item.run_ids)}")
