"""`inductor-watch backfill`: measure builds of torch that are not installed, each in an environment of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from jobs.builds.options import Making, making_options
from jobs.option_groups import Selection, Working, care_options, label_option, measuring_options
from jobs.options import db_option, json_option
from jobs.plan.selection import night_options
from jobs.pool.extra_measurements import Care

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.builds.backfill import Backfill, Filled, Store
    from jobs.builds.build import Build


@click.command(
    help="Measure builds of torch that are not installed, oldest first, each in an environment made for it, and store them under "
    "their own commits. The same command again continues where it was stopped."
)
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build of torch, e.g. 2.9.1; repeatable.")
@making_options
@night_options
@measuring_options
@care_options
@click.option(
    "--replicates",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Measure each build so many times, as runs of one night.",
)
@click.option("--branch", help="The branch under which the builds are stored [releases, or nightly].")
@label_option
@click.option(
    "--remove", is_flag=True, help="Only delete the environments of these builds; without --torch, all in --envs."
)
@json_option
@db_option
def command(
    versions: tuple[str, ...],
    making: Making,
    selection: Selection,
    configs: tuple[str, ...],
    working: Working,
    care: Care,
    replicates: int,
    branch: str | None,
    label: str,
    remove: bool,
    as_json: bool,
    database: str,
) -> None:
    """Fills in one build after the other and prints a line for each."""
    from jobs.builds.backfill import Backfill, NothingFilledError
    from jobs.builds.build import in_order, parse_build
    from jobs.builds.index import ask_or_nothing
    from jobs.builds.request import Request
    from jobs.pool.runner import RunNames

    builds = in_order(map(parse_build, versions))
    environments = making.environments(selection.device)
    if remove:
        for name in environments.remove(builds):
            click.echo(f"removed {name}")
        return
    if not builds:
        raise click.UsageError("name the builds to measure: --torch 2.9.1 --torch 2.10.0")
    names = RunNames(branch=branch, trigger="backfill", label=label)
    request = Request(selection, configs, names, working.settings(care), working.pace())
    store = None if working.no_store else _open(database)
    listing = ask_or_nothing(making.origin.words())
    work = Backfill(environments, request, working.out, replicates, listing, store, _tell)
    try:
        filled = [_filled(work, build) for build in builds]
    except KeyboardInterrupt:
        click.echo("interrupted: what was measured is in the bundles, the same command continues", err=True)
        raise click.exceptions.Exit(130) from None
    _sum_up(filled, as_json)
    if all(one.skipped for one in filled):
        raise NothingFilledError("no build was measured")


def _filled(work: Backfill, build: Build) -> Filled:
    found = work.fill(build)
    if found.skipped:
        _tell(str(found))
    return found


def _tell(line: str) -> None:
    from jobs.output.terminal import one_line

    click.echo(one_line(line), err=True)


def _open(database: str) -> Store:
    """Opens the store before anything is measured; what is returned puts a bundle into it and says so in a line."""
    from db.engine import open_store, shown
    from db.ingest import ingest_bundle

    engine = open_store(database, write=True)

    def put(path: Path) -> str:
        report = ingest_bundle(engine, path)
        return f"database {shown(database)}: {report.new + report.updated} measurements stored"

    return put


def _sum_up(filled: list[Filled], as_json: bool) -> None:
    from jobs.output.terminal import one_line

    if as_json:
        click.echo(json.dumps([one.to_json() for one in filled], indent=2))
        return
    for one in filled:
        click.echo(one_line(str(one)))
    undated = [one.build.version for one in filled if not one.skipped and not one.date]
    if undated:
        click.echo(f"no date is known of {', '.join(undated)}: histories order these builds by when they were measured")
