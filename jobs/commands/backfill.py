"""`inductor-watch backfill`: measure builds of torch that are not installed, each in an environment of its own."""

from __future__ import annotations

import click

from jobs.builds.options import BuildOptions, build_options, parse_build
from jobs.options import (
    POSITIVE,
    Storage,
    json_option,
    label_option,
    measuring_options,
    night_options,
    storage_options,
)
from jobs.output.terminal import print_json, print_lines, tell
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection


@click.command()
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build of torch, e.g. 2.9.1; repeatable.")
@build_options
@night_options
@measuring_options
@storage_options
@click.option("--replicates", type=POSITIVE, default=1, help="Measure each build so many times, as runs of one night.")
@click.option("--branch", help="The branch under which the builds are stored [releases, or nightly].")
@label_option
@click.option(
    "--remove", is_flag=True, help="Only delete the environments of these builds; without --torch, all in --envs."
)
@json_option
def backfill_command(
    versions: tuple[str, ...],
    options: BuildOptions,
    selection: Selection,
    configs: tuple[str, ...],
    requested: RequestedOptions,
    storage: Storage,
    replicates: int,
    branch: str | None,
    label: str,
    remove: bool,
    as_json: bool,
) -> None:
    """Measure builds of torch that are not installed, oldest first, each in an environment made for it.

    They are stored under their own commits. The same command again continues where it was stopped.
    """
    from jobs.builds.backfill import Backfill
    from jobs.builds.environment import Environments
    from jobs.builds.index import list_or_nothing
    from jobs.plan.planning import NothingToDoError
    from jobs.pool.child import Request
    from jobs.pool.session import storing

    builds = sorted(set(map(parse_build, versions)))
    environments = Environments(options, selection.device)
    if remove:
        for name in environments.remove(builds):
            click.echo(f"removed {name}")
        return
    if not builds:
        raise click.UsageError("name the builds to measure: --torch 2.9.1 --torch 2.10.0")
    request = Request(selection, configs, RunNames(branch=branch, trigger="backfill", label=label), requested)
    store = None if storage.no_store else storing(storage.database)
    listing = list_or_nothing(options.words())
    backfill = Backfill(environments, request, storage.out, replicates, listing, store, tell)
    try:
        results = [backfill.fill(build) for build in builds]
    except KeyboardInterrupt:
        click.echo("interrupted: what was measured is in the bundles, the same command continues", err=True)
        raise click.exceptions.Exit(130) from None
    if as_json:
        print_json([result.to_json() for result in results])
    else:
        print_lines(map(str, results))
        if undated := [result.build for result in results if not result.skipped and not result.date]:
            names = ", ".join(undated)
            click.echo(f"no date is known of {names}: histories order these builds by when they were measured")
    if all(result.skipped for result in results):
        raise NothingToDoError("no build was measured")
