"""`inductor-watch ingest`: bundles into the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from jobs.options import db_option, json_option


@click.command(help="Put bundles into the database; the same bundle twice changes nothing.")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@db_option
@json_option
def command(bundles: tuple[Path, ...], database: str, as_json: bool) -> None:
    """Ingests each bundle, all of it or, where it cannot be read at all, nothing of it."""
    from collector.bundle import check_bundle
    from db.engine import open_store
    from db.ingest import ingest_bundle
    from jobs.terminal import one_line

    paths = find_bundles(bundles)
    for path in paths:
        check_bundle(path)  # before a database is made for nothing
    engine = open_store(database, write=True)
    for path in paths:
        report = ingest_bundle(engine, path)
        if as_json:
            click.echo(json.dumps({"bundle": str(path), **asdict(report)}))
            continue
        counts = f"{report.new} new, {report.updated} updated, {report.unchanged} unchanged"
        click.echo(one_line(f"{path}: run {report.run_id}: {counts}"))
        for problem in report.damage:
            click.echo(one_line(f"{path}: {problem}; what was whole is in the database"), err=True)


def find_bundles(places: tuple[Path, ...]) -> list[Path]:
    """The files among the places, and every bundle below the folders among them."""
    found: list[Path] = []
    for place in places:
        found += sorted(place.rglob("*.jsonl*")) if place.is_dir() else [place]
    return [path for path in found if not path.name.endswith(".partial")]
