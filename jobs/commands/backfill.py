"""`inductor-watch backfill`: measure builds of torch that are not installed, each in an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.builds.options import BuildOptions, build_options
from jobs.options import (
    db_option,
    json_option,
    label_option,
    measuring_options,
    night_options,
    no_store_option,
    out_option,
)
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection

if TYPE_CHECKING:
    from jobs.builds.backfill import BuildResult


class NothingFilledError(click.ClickException):
    """Not one build could be measured."""

    exit_code = 3


@click.command(
    help="Measure builds of torch that are not installed, oldest first, each in an environment made for it, and store them under "
    "their own commits. The same command again continues where it was stopped."
)
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build of torch, e.g. 2.9.1; repeatable.")
@build_options
@night_options
@measuring_options
@out_option
@no_store_option
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
    options: BuildOptions,
    selection: Selection,
    configs: tuple[str, ...],
    requested: RequestedOptions,
    out: Path,
    no_store: bool,
    replicates: int,
    branch: str | None,
    label: str,
    remove: bool,
    as_json: bool,
    database: str,
) -> None:
    """Measures one build after the other and prints a line for each."""
    from jobs.builds.backfill import Backfill
    from jobs.builds.build import in_order, parse_build
    from jobs.builds.environment import Environments
    from jobs.builds.index import list_or_nothing
    from jobs.output.terminal import tell
    from jobs.pool.child import Request
    from jobs.pool.session import storing

    builds = in_order(map(parse_build, versions))
    environments = Environments(options, selection.device)
    if remove:
        for name in environments.remove(builds):
            click.echo(f"removed {name}")
        return
    if not builds:
        raise click.UsageError("name the builds to measure: --torch 2.9.1 --torch 2.10.0")
    names = RunNames(branch=branch, trigger="backfill", label=label)
    request = Request(selection, configs, names, requested)
    store = None if no_store else storing(database)
    listing = list_or_nothing(options.words())
    backfill = Backfill(environments, request, out, replicates, listing, store, tell)
    try:
        results = [backfill.fill(build) for build in builds]
    except KeyboardInterrupt:
        click.echo("interrupted: what was measured is in the bundles, the same command continues", err=True)
        raise click.exceptions.Exit(130) from None
    _print(results, as_json)
    if all(result.skipped for result in results):
        raise NothingFilledError("no build was measured")


def _print(results: list[BuildResult], as_json: bool) -> None:
    from jobs.output.terminal import one_line

    if as_json:
        click.echo(json.dumps([result.to_json() for result in results], indent=2))
        return
    for result in results:
        click.echo(one_line(str(result)))
    undated = [result.build.version for result in results if not result.skipped and not result.date]
    if undated:
        click.echo(f"no date is known of {', '.join(undated)}: histories order these builds by when they were measured")
