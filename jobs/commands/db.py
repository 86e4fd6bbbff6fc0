"""`inductor-watch db`: create, upgrade, describe, check, thin out, remove, rebuild."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import db_option, json_option
from jobs.output.terminal import one_line

if TYPE_CHECKING:
    from db.ingest import IngestReport
    from db.maintenance.check import Finding
    from db.maintenance.check_bundles import BundleCheck
    from db.maintenance.prune import PruneReport, RemovedRun
    from db.maintenance.rebuild import RebuildReport

#: Findings that are printed; `--json` has all of them.
_SHOWN = 50
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """A span of time, e.g. `90d`."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Hours, days or weeks."""
        if isinstance(value, timedelta):
            return value
        if match := re.fullmatch(r"(\d{1,5})([hdw])", value):
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
        return self.fail(f"{value!r} is no age: write 90d, 12h or 8w", param, ctx)


@click.group(help="Create, upgrade, describe, check, thin out or rebuild the database, or remove a run.")
def command() -> None:
    """The group of the database's own verbs."""


@command.command(help="Create the database or bring its schema up to date; nothing that it holds is lost.")
@db_option
def upgrade(database: str) -> None:
    """Migrates to the newest schema."""
    from db.engine import open_store, shown
    from db.maintenance.migrate import current

    engine = open_store(database, write=True)
    click.echo(f"{shown(database)}: schema {current(engine)}")


@command.command(help="Schema, revision of the data, nights, runs and measurements.")
@db_option
@json_option
def info(database: str, as_json: bool) -> None:
    """Prints what the database holds in a few lines."""
    from db.engine import open_store, shown
    from db.maintenance.migrate import current
    from db.queries.cells import list_runs, revision

    engine = open_store(database, write=False)
    runs = list_runs(engine)
    facts = {
        "database": shown(database),
        "schema": current(engine),
        "revision": revision(engine),
        "nights": len({run.night for run in runs}),
        "runs": len(runs),
        "measurements": sum(run.measured for run in runs),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"{facts['database']}: schema {facts['schema']}, data revision {facts['revision']}")
    click.echo(f"{facts['nights']} nights, {facts['runs']} runs, {facts['measurements']} measurements")


@command.command(
    help="Compare the database with itself and with bundles; exit 1 where they differ, 4 where it is damaged."
)
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of bundles to read."
)
@db_option
@json_option
@click.pass_context
def check(ctx: click.Context, bundles: tuple[Path, ...], out: Path, database: str, as_json: bool) -> None:
    """Compares with the bundles named, else with those of the folder that runs go to, if there is one."""
    from db.engine import open_store
    from db.maintenance.check import check_store
    from db.maintenance.check_bundles import check_bundles
    from jobs.commands.ingest import find_bundles

    engine = open_store(database, write=False)
    paths = find_bundles(bundles or ((out,) if out.is_dir() else ()))
    own = check_store(engine)
    compared = check_bundles(engine, paths)
    if as_json:
        findings = [*own, *compared.findings]
        click.echo(json.dumps({"findings": [asdict(item) for item in findings], **_counts(compared)}, indent=2))
    else:
        _show_findings(own, compared, len(paths))
    ctx.exit(1 if own or compared.findings else 0)


def _counts(compared: BundleCheck) -> dict[str, Any]:
    return {name: value for name, value in asdict(compared).items() if name != "findings"}


def _show_findings(own: list[Finding], compared: BundleCheck, bundles: int) -> None:
    findings = [*own, *compared.findings]
    for item in findings[:_SHOWN]:
        click.echo(one_line(f"{item.kind}: {item.text}"))
    if len(findings) > _SHOWN:
        click.echo(f"... and {len(findings) - _SHOWN} more (--json has them all)")
    for line in compared.damage:
        click.echo(one_line(f"{line}; what was whole was compared"), err=True)
    click.echo(f"against itself: {len(own) or 'nothing'} found")
    thinned = f", {compared.thinned} samples and texts thinned out by age" if compared.thinned else ""
    click.echo(
        f"against {bundles} bundles: {compared.runs} runs, {compared.measurements} measurements:"
        f" {len(compared.findings) or 'nothing'} found{thinned}"
    )
    if compared.untold:
        click.echo(f"{len(compared.untold)} runs of the database are in none of these bundles")


@command.command(help="Thin out by age: raw samples, then evidence, whole runs only with --drop-runs-older-than.")
@click.option("--older-than", type=Age(), required=True, help="Age from which samples and evidence go, e.g. 90d.")
@click.option("--keep-samples", type=Age(), help="A lower age for raw samples [that of --older-than].")
@click.option("--drop-runs-older-than", type=Age(), help="Age from which runs go with all that they measured [never].")
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("--vacuum", is_flag=True, help="Give the room back to the disk afterwards.")
@db_option
@json_option
def prune(
    older_than: timedelta,
    keep_samples: timedelta | None,
    drop_runs_older_than: timedelta | None,
    dry_run: bool,
    vacuum: bool,
    database: str,
    as_json: bool,
) -> None:
    """Keeps the measurements of open regressions."""
    from db.engine import open_store
    from db.maintenance.prune import Ages
    from db.maintenance.prune import prune as thin_out
    from db.maintenance.prune import vacuum as give_room_back

    engine = open_store(database, write=not dry_run)
    ages = Ages(keep_samples or older_than, older_than, drop_runs_older_than)
    report = thin_out(engine, ages, datetime.now(UTC), dry_run=dry_run)
    if vacuum and not dry_run:
        give_room_back(engine)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, **asdict(report)}, indent=2))
        return
    for line in _pruned(report, "would go" if dry_run else "gone"):
        click.echo(one_line(line))


@command.command(help="Remove one run with all that it measured. Its bundle stays, and `ingest` brings it back.")
@click.argument("run")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@db_option
@json_option
@click.pass_context
def remove(ctx: click.Context, run: str, yes: bool, database: str, as_json: bool) -> None:
    """Says what goes, asks, and removes it; RUN is the whole name that `runs` shows."""
    from db.engine import open_store
    from db.maintenance.prune import remove_run

    engine = open_store(database, write=True)
    removed = remove_run(engine, run, dry_run=True)
    if not as_json:
        for line in _removing(removed):
            click.echo(one_line(line))
    if not yes and not _confirmed():
        click.echo("nothing was removed", err=True)
        ctx.exit(1)
    remove_run(engine, run)
    done = {**asdict(removed), "started_at": removed.started_at.isoformat()}
    click.echo(json.dumps(done, indent=2) if as_json else "removed")


def _confirmed() -> bool:
    try:
        return click.confirm("Remove this run from the database?", err=True)
    except click.Abort:  # there is no one to answer
        return False


def _removing(removed: RemovedRun) -> list[str]:
    origin = f"{removed.branch}@{removed.commit[:10]}, started {removed.started_at:%Y-%m-%d %H:%M} UTC"
    lines = [f"run {removed.run_id} of night {removed.night}: {origin}"]
    lines.append(
        f"{removed.measurements} measurements and {removed.missing} missing cells; the bundle {removed.bundle} stays"
    )
    if removed.records:
        lines.append(f"regressions that lose this run and keep its values: {', '.join(removed.records)}")
    return lines


def _pruned(report: PruneReport, went: str) -> list[str]:
    lines = [
        f"{went}: raw samples of {report.samples} metrics (count and spread stay), evidence of {report.evidence} measurements"
    ]
    if report.runs or report.kept:
        lines.append(f"{went}: {len(report.runs)} runs with {report.measurements} measurements")
    if report.kept:
        lines.append(f"kept for open regressions: {len(report.kept)} runs, e.g. {report.kept[0]}")
    return lines


@command.command(help="Build a new database from bundles, with commits and regressions carried over from the old one.")
@click.argument("new_db")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--no-carry", is_flag=True, help="From bundles alone: there is no old database, or it cannot be read.")
@db_option
@json_option
@click.pass_context
def rebuild(
    ctx: click.Context, new_db: str, bundles: tuple[Path, ...], no_carry: bool, database: str, as_json: bool
) -> None:
    """NEW_DB is a path or URL where nothing is yet; the old database is read only."""
    from db.engine import open_store, shown
    from db.maintenance.rebuild import rebuild as build
    from jobs.commands.ingest import find_bundles

    def tell(path: Path, report: IngestReport) -> None:
        if not as_json:
            click.echo(one_line(f"{path}: run {report.run_id}: {report.new} new, {report.updated} updated"))

    old = None if no_carry else open_store(database, write=False, older=True)
    report = build(new_db, find_bundles(bundles), old, on_bundle=tell)
    if as_json:
        click.echo(json.dumps({"database": shown(new_db), **asdict(report)}, indent=2))
    else:
        _show_rebuilt(shown(new_db), report)
    ctx.exit(1 if report.lost or report.unread else 0)


def _show_rebuilt(store: str, report: RebuildReport) -> None:
    for line in report.unread:
        click.echo(one_line(f"{line}; the others are in the new database"), err=True)
    for line in report.damage:
        click.echo(one_line(f"{line}; what was whole is in the database"), err=True)
    click.echo(
        f"{store}: {report.runs} runs, {report.measurements} measurements, {report.commits} commits;"
        f" carried over: {report.regressions} regressions"
    )
    if report.lost:
        names = ", ".join(report.lost[:3]) + (", ..." if len(report.lost) > 3 else "")
        click.echo(
            one_line(f"{len(report.lost)} runs of the old database are in none of these bundles: {names}"), err=True
        )
