"""`inductor-watch db`: create, upgrade, describe."""

from __future__ import annotations

import click

from jobs.options import db_option


@click.group(help="Create, upgrade or describe the database.")
def command() -> None:
    """The group of the database's own verbs."""


@command.command(help="Create the database or bring its schema up to date; nothing that it holds is lost.")
@db_option
def upgrade(database: str) -> None:
    """Migrates to the newest schema."""
    from db.engine import open_store
    from db.migrate import current

    engine = open_store(database, write=True)
    click.echo(f"{database}: schema {current(engine)}")


@command.command(help="Schema, revision of the data, runs and measurements.")
@db_option
def info(database: str) -> None:
    """Prints what the database holds in a few lines."""
    from db.engine import open_store
    from db.migrate import current
    from db.queries import list_runs, revision

    engine = open_store(database, write=False)
    runs = list_runs(engine)
    click.echo(f"{database}: schema {current(engine)}, data revision {revision(engine)}")
    click.echo(f"{len(runs)} runs, {sum(run.measured for run in runs)} measurements")
