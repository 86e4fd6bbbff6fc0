"""`inductor-watch publish DIR`: the newest nights as a static site."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.site.publishing import NIGHTS, publish
from db.engine import open_store
from db.store_errors import counted
from jobs import tool_version
from jobs.options import FOLDER, POSITIVE, check_page_address, db_option, example


@click.command(epilog=example("publish site --nights 60"))
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--nights", type=POSITIVE, default=NIGHTS, help="How many of the newest nights.")
@click.option(
    "--address",
    default="",
    show_default=False,
    callback=check_page_address,
    metavar="URL",
    help="Where the site will be, for the links of its feed.",
)
@db_option
def publish_command(folder: Path, nights: int, address: str, database: str) -> None:
    """Write the newest nights into DIR as pages that need no server: docs/site.md.

    What did not change since the last time stays as it is; what is older than the nights is removed.
    """
    engine = open_store(database, write=False)
    done = publish(engine, folder, nights=nights, address=address, made_by=tool_version())
    counts = f"{counted(done.nights, 'night')}, {counted(done.pairs, 'pair')} with verdicts"
    files = f"{done.written} files written, {done.kept} kept, {done.removed} removed"
    click.echo(f"{folder}: {counts}; {files}; {done.size / 1e6:.1f} MB")
    click.echo(f"look at it: python -m http.server --directory {folder}")
