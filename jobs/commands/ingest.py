"""`inductor-watch ingest`: bundles into the database."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.options import db_option, json_option

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from jobs.plan.planning import Plan

#: Seconds by which the clock of a host that measured may be ahead of this one.
_SKEW_S = 600


@click.command(help="Put bundles into the database; the same bundle twice changes nothing.")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The plan.json of `plan --shards`: its cells that came with no bundle of the night count as missing. "
    "Exit code 3 if none came.",
)
@click.option("--github-output", is_flag=True, help="With --plan: night, base, runs and lost as a step's outputs.")
@db_option
@json_option
def command(
    bundles: tuple[Path, ...], plan_file: Path | None, github_output: bool, database: str, as_json: bool
) -> None:
    """Ingests each bundle, all of it or nothing; ends with 1 where some could not be stored, with 2 where none could."""
    from collector.bundle import BundleError, check_bundle
    from db.engine import open_store

    if github_output and not plan_file:
        raise click.UsageError("--github-output goes with --plan: name the night's plan.json, or leave it out")
    plan = _night_plan(plan_file) if plan_file else None
    paths, bad, engine = find_bundles(bundles), 0, None
    for path in paths:
        try:
            check_bundle(path)  # before a database is made for nothing
            engine = engine or open_store(database, write=True)
            _ingest(engine, path, as_json)
        except BundleError as error:
            bad += 1
            _tell_bad(path, error, as_json)
    if plan:
        _merge(engine or open_store(database, write=True), plan, _folder(bundles), github_output, as_json)
    if bad and len(paths) > 1:
        problem = f"{bad} of {len(paths)} bundles could not be stored: repair or remove them"
        click.echo(problem + "; the others are in the database" * (bad < len(paths)), err=True)
    if bad:
        raise click.exceptions.Exit(1 if bad < len(paths) else 2)


def _ingest(engine: Engine, path: Path, as_json: bool) -> None:
    from db.ingest import ingest_bundle
    from jobs.output.terminal import one_line

    report = ingest_bundle(engine, path, not_after=newest_start())
    if as_json:
        click.echo(json.dumps({"bundle": str(path), **asdict(report)}))
        return
    counts = f"{report.new} new, {report.updated} updated, {report.unchanged} unchanged"
    click.echo(one_line(f"{path}: run {report.run_id}: {counts}"))
    for problem in report.damage:
        click.echo(one_line(f"{path}: {problem}; what was whole is in the database"), err=True)


def _tell_bad(path: Path, error: Exception, as_json: bool) -> None:
    from jobs.output.terminal import one_line

    if as_json:
        click.echo(json.dumps({"bundle": str(path), "problem": str(error)}))
    click.echo(one_line(f"inductor-watch: {error}"), err=True)


def _night_plan(path: Path) -> Plan:
    from jobs.plan.planning import load_plan
    from jobs.plan.shards import night_of

    plan = load_plan(path)
    night_of(plan, path)
    return plan


def _merge(engine: Engine, plan: Plan, folder: Path, github_output: bool, as_json: bool) -> None:
    from jobs.github.ci import write_outputs
    from jobs.output.terminal import one_line
    from jobs.plan.shards import merge_night

    merged = merge_night(engine, plan, folder)
    click.echo(json.dumps({**asdict(merged), "bundle": str(merged.bundle or "")}) if as_json else one_line(str(merged)))
    if github_output:
        write_outputs({"night": merged.night, "base": merged.base, "runs": str(merged.runs), "lost": str(merged.lost)})


def _folder(bundles: tuple[Path, ...]) -> Path:
    """The folder of the bundle of missing cells: beside the others."""
    return next((path for path in bundles if path.is_dir()), bundles[0].parent)


def newest_start() -> float:
    """The latest start of a run that is accepted, in seconds since 1970."""
    return time.time() + _SKEW_S


def find_bundles(paths: tuple[Path, ...]) -> list[Path]:
    """The files among the paths, and every bundle below the folders among them."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.jsonl*")) if path.is_dir() else [path]
    return [file for file in files if not file.name.endswith(".partial")]
