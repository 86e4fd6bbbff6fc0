"""`inductor-watch backfill`: measure builds of torch in environments of their own, and commits by their Python files."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from jobs.builds.build_environments import Environments, Listing, list_builds
from jobs.builds.build_options import (
    BuildError,
    BuildOptions,
    SourceOptions,
    build_options,
    import_commits,
    overlay_options,
    parse_build,
)
from jobs.builds.build_runs import Backfill, Build, SourceCommit, commits_of
from jobs.measuring_options import label_option, measuring_options, night_options
from jobs.options import POSITIVE, Storage, example, json_option, storage_options
from jobs.output.terminal import print_json, print_lines, tell
from jobs.plan.planning import NothingToDoError
from jobs.pool.child import Request
from jobs.pool.session import storing
from jobs.requested_options import RequestedOptions, RunNames, Selection


@click.command(epilog=example("backfill --torch 2.12.1 --torch 2.13.0"))
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build of torch, e.g. 2.9.1; repeatable.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="REPO@REF|REPO@GOOD..BAD",
    help="A PyTorch commit without a build, or those after GOOD up to BAD: their Python files over the installed torch; "
    "repeatable.",
)
@click.option(
    "--last", type=POSITIVE, metavar="N", help="With --source: the last N commits up to REF, or of the range."
)
@click.option(
    "--touching",
    multiple=True,
    metavar="PATH",
    help="With --source: of a range, or the last N, only commits that touch this path, e.g. torch/_inductor; repeatable.",
)
@overlay_options
@build_options
@night_options
@measuring_options
@storage_options
@click.option("--replicates", type=POSITIVE, default=1, help="Measure each build so many times, as runs of one night.")
@click.option("--branch", help="The branch under which the builds are stored [releases, or nightly].")
@label_option
@json_option
def backfill_command(
    versions: tuple[str, ...],
    sources: tuple[str, ...],
    last: int | None,
    touching: tuple[str, ...],
    source: SourceOptions,
    options: BuildOptions,
    selection: Selection,
    configs: tuple[str, ...],
    requested: RequestedOptions,
    storage: Storage,
    replicates: int,
    branch: str | None,
    label: str,
    as_json: bool,
) -> None:
    """Measure builds of torch that are not installed, oldest first, each in an environment made for it.

    With --source measure commits of a clone without a build, their Python files over the installed torch.
    They are stored under their own commits. The same command again continues where it was stopped.
    """
    builds = sorted(set(map(parse_build, versions)))
    if not builds and not sources:
        raise click.UsageError("name what to measure: --torch 2.9.1 --torch 2.10.0, or --source REPO@REF")
    if (last or touching) and not sources:
        raise click.UsageError("--last and --touching choose among the commits of --source: add it")
    commits = [one for text in sources for one in commits_of(replace(source, source=text), touching, last)]
    request = Request(selection, configs, RunNames(branch=branch, trigger="backfill", label=label), requested)
    store = None if storage.no_store else storing(storage.database)
    environments, listing = Environments(options, selection.device), Listing()
    with suppress(BuildError):  # then no date is known
        listing = list_builds(options.words()) if builds else listing
    candidates: list[Build | SourceCommit] = [*(Build(build, environments, listing) for build in builds), *commits]
    backfill = Backfill(request, storage.out, replicates, store, tell)
    if storage.target:
        _import(commits, request.names, storage.target)
    try:
        results = [backfill.fill(candidate) for candidate in candidates]
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


def _import(commits: list[SourceCommit], names: RunNames, database: str) -> None:
    """Imports the commits of each clone and branch at once: they are measured one after the other."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for commit in commits:
        groups.setdefault((commit.clone, names.branch or commit.branch), []).append(commit.sha)
    for (clone, branch), shas in groups.items():
        import_commits(clone, shas, replace(names, branch=branch), database)
