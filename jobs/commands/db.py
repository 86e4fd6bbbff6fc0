"""`inductor-watch db`, `runs`, `dashboard` and `mcp`: maintain the database, list its runs, and serve it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from db.engine import open_store, shown
from db.ingest import IngestReport
from db.maintenance import upkeep
from db.maintenance.consistency import check_bundles, check_store
from db.maintenance.migrate import current
from db.maintenance.upkeep import PruneReport, RebuildReport, RemovedRun, remove_run
from db.maintenance.upkeep import rebuild as build
from db.nights import NightInfo, RunInfo, device_name, list_nights, list_runs
from db.queries.cells import revision
from db.store_errors import counted
from jobs.commands.files import find_bundles
from jobs.options import EXISTING, POSITIVE, branch_option, db_option, example, json_option
from jobs.output.terminal import one_line, print_json, print_lines, tell
from jobs.pool.usage import usage_words

#: Findings that are printed; `--json` has all of them.
_SHOWN = 50
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """A span of time in hours, days or weeks, e.g. `90d`."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return the span of time that the text names."""
        if match := re.fullmatch(r"(\d{1,5})([hdw])", value):
            return timedelta(**{_UNITS[match[2]]: int(match[1])})
        return self.fail(f"{value!r} is no age: write 90d, 12h or 8w", param, ctx)


@click.group(epilog=example("db check"))
def db_command() -> None:
    """Create, upgrade, describe, check, thin out or rebuild the database, or remove a run."""


@db_command.command()
@db_option
def upgrade(database: str) -> None:
    """Create the database or bring its schema up to date; nothing that it holds is lost."""
    engine = open_store(database, write=True)
    click.echo(f"{shown(database)}: schema {current(engine)}")


@db_command.command()
@db_option
@json_option
def info(database: str, as_json: bool) -> None:
    """Show schema, revision of the data, and numbers of nights, runs and measurements."""
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
        print_json(facts)
        return
    click.echo(
        "{database}: schema {schema}, data revision {revision}\n"
        "{nights} nights, {runs} runs, {measurements} measurements".format_map(facts)
    )


@db_command.command()
@click.argument("bundles", nargs=-1, type=EXISTING)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of bundles to read.")
@db_option
@json_option
@click.pass_context
def check(ctx: click.Context, bundles: tuple[Path, ...], out: Path, database: str, as_json: bool) -> None:
    """Compare the database with itself and with bundles; exit 1 where they differ, 4 where it is damaged.

    Without BUNDLES the bundles in the folder --out are read, if there is one.
    """
    engine = open_store(database, write=False)
    paths = find_bundles(bundles or ((out,) if out.is_dir() else ()))
    own = check_store(engine)
    compared = check_bundles(engine, paths)
    findings = [*own, *compared.findings]
    if as_json:
        print_json(asdict(compared) | {"findings": [asdict(item) for item in findings]})
        ctx.exit(1 if findings else 0)
    print_lines((f"{item.kind}: {item.text}" for item in findings), most=_SHOWN)
    print_lines((f"{line}; what was whole was compared" for line in compared.damage), err=True)
    click.echo(f"against itself: {len(own) or 'nothing'} found")
    thinned = f", {compared.thinned} samples and texts thinned out by age" if compared.thinned else ""
    click.echo(
        f"against {len(paths)} bundles: {compared.runs} runs, {compared.measurements} measurements:"
        f" {len(compared.findings) or 'nothing'} found{thinned}"
    )
    if any(item.kind == "secret" for item in findings):
        click.echo(
            "no command shows the secrets: change them, take them out of the bundles, and make a clean database with"
            " `inductor-watch db rebuild NEW_DB BUNDLES...`"
        )
    if compared.untold:
        click.echo(f"{len(compared.untold)} runs of the database are in none of these bundles")
    ctx.exit(1 if findings else 0)


@db_command.command()
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
    """Thin out by age: raw samples, then evidence, whole runs only with --drop-runs-older-than.

    The measurements of open regressions stay.
    """
    engine = open_store(database, write=not dry_run)
    ages = upkeep.Ages(keep_samples or older_than, older_than, drop_runs_older_than)
    report = upkeep.prune(engine, ages, datetime.now(UTC), dry_run=dry_run)
    if vacuum and not dry_run:
        upkeep.vacuum(engine)
    if as_json:
        print_json({"dry_run": dry_run, **asdict(report)})
    else:
        print_lines(_pruned(report, "would go" if dry_run else "gone"))


def _pruned(report: PruneReport, went: str) -> Iterator[str]:
    samples = f"raw samples of {report.samples} metrics (count and spread stay)"
    yield f"{went}: {samples}, evidence of {report.evidence} measurements"
    if report.runs or report.kept:
        yield f"{went}: {len(report.runs)} runs with {report.measurements} measurements"
    if report.kept:
        yield f"kept for open regressions: {len(report.kept)} runs, e.g. {report.kept[0]}"


@db_command.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@db_option
@json_option
@click.pass_context
def remove(ctx: click.Context, run: str, yes: bool, database: str, as_json: bool) -> None:
    """Remove one run with all that it measured. Its bundle stays, and `ingest` brings it back.

    RUN is the whole name that `runs` shows.
    """
    engine = open_store(database, write=True)
    removed = remove_run(engine, run, dry_run=True)
    if not as_json:
        print_lines(_removing(removed))
    if not yes and not _confirmed():
        click.echo("nothing was removed", err=True)
        ctx.exit(1)
    remove_run(engine, run)
    if as_json:
        print_json(asdict(removed))
    else:
        click.echo("removed")


def _confirmed() -> bool:
    try:
        return click.confirm("Remove this run from the database?", err=True)
    except click.Abort:  # there is no one to answer
        return False


def _removing(removed: RemovedRun) -> Iterator[str]:
    origin = f"{removed.branch}@{removed.commit[:10]}, started {removed.started_at:%Y-%m-%d %H:%M} UTC"
    yield f"run {removed.run_id} of night {removed.night}: {origin}"
    counts = f"{removed.measurements} measurements and {removed.missing} missing cells"
    yield f"{counts}; the bundle {removed.bundle} stays"
    if removed.records:
        yield f"regressions that lose this run and keep its values: {', '.join(removed.records)}"


@db_command.command()
@click.argument("new_db")
@click.argument("bundles", nargs=-1, required=True, type=EXISTING)
@click.option("--no-carry", is_flag=True, help="From bundles alone: there is no old database, or it cannot be read.")
@db_option
@json_option
@click.pass_context
def rebuild(
    ctx: click.Context, new_db: str, bundles: tuple[Path, ...], no_carry: bool, database: str, as_json: bool
) -> None:
    """Build a new database from bundles, with commits and regressions carried over from the old one.

    NEW_DB is a path or URL where nothing is yet; the old database is read only.
    """

    def show(path: Path, report: IngestReport) -> None:
        if not as_json:
            print_lines([f"{path}: run {report.run_id}: {report.new} new, {report.updated} updated"])

    old = None if no_carry else open_store(database, write=False, older=True)
    report = build(new_db, find_bundles(bundles), old, on_bundle=show)
    if as_json:
        print_json({"database": shown(new_db), **asdict(report)})
    else:
        _show_rebuilt(shown(new_db), report)
    ctx.exit(1 if report.lost or report.unread else 0)


def _show_rebuilt(store: str, report: RebuildReport) -> None:
    print_lines((f"{line}; the others are in the new database" for line in report.unread), err=True)
    print_lines((f"{line}; what was whole is in the database" for line in report.damage), err=True)
    click.echo(
        f"{store}: {report.runs} runs, {report.measurements} measurements, {report.commits} commits;"
        f" carried over: {report.regressions} regressions"
    )
    if report.notes:
        click.echo(f"{counted(len(report.notes), 'note')} of the old database, which a database no longer holds:")
        print_lines(report.notes)
    if report.lost:
        names = ", ".join(report.lost[:3]) + (", ..." if len(report.lost) > 3 else "")
        tell(f"{len(report.lost)} runs of the old database are in none of these bundles: {names}")


@click.command(epilog=example("runs --branch main"))
@branch_option
@click.option("--limit", type=POSITIVE, default=30, help="Nights to show.")
@db_option
@json_option
def runs_command(branch: str | None, limit: int, database: str, as_json: bool) -> None:
    """List the nights in the database with their runs, newest first."""
    nights = list_nights(open_store(database, write=False), branch=branch, limit=limit, with_census=True)
    if as_json:
        print_json([{name: getattr(run, name) for name in _FIELDS} for night in nights for run in night.runs])
        return
    for night in nights:
        print_lines(_lines(night))
    if not nights:
        click.echo(
            f"no runs of branch {one_line(branch)!r}: see `inductor-watch runs`"
            if branch
            else "no runs: measure some with `inductor-watch nightly`, or add bundles with `inductor-watch ingest`"
        )


_FIELDS = (
    *("night", "run_id", "branch", "commit", "label", "trigger", "ci_url", "attempt", "started_at", "finished_at"),
    *("testbed_id", "testbed", "planned", "measured", "statuses", "usage"),
)


def _lines(night: NightInfo) -> list[str]:
    newest = night.runs[0]
    what = " + ".join(dict.fromkeys(f"{run.branch}@{run.commit[:10]}" for run in night.runs))
    labels = ", ".join(dict.fromkeys(run.label for run in night.runs if run.label))
    is_alone = len(night.runs) == 1 and newest.run_id == night.night
    origin = f"{night.place}{_attempt(newest) if is_alone else ''}{f' [{labels}]' if labels else ''}"
    lines = [f"{night.night}  {what}  {origin}: {_counts(night)}"]
    for run in () if is_alone else night.runs:
        index = run.testbed.get("gpu_index")
        where = device_name(run.testbed) + ("" if index is None else f" {index}")
        lines.append(f"    {run.run_id}  {where}{_attempt(run)}: {_counts(run)}")
    lines += [f"    used{'' if is_alone else f' by {run.run_id}'} in {_usage(run)}" for run in night.runs if run.usage]
    return lines


def _usage(run: RunInfo) -> str:
    try:
        return one_line(usage_words(run.usage or {}), 200)
    except (KeyError, TypeError, ValueError):  # of another version
        return "not known"


def _attempt(run: RunInfo) -> str:
    return f", attempt {run.attempt}" if run.attempt > 1 else ""


def _counts(of: NightInfo | RunInfo) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(of.statuses.items()))
    return (counts or "nothing") + (f", {of.missing} missing" if of.missing > 0 else "")


@click.command(epilog=example("dashboard --db inductor-watch.db"))
@db_option
@click.option("--port", type=click.IntRange(1, 65535), default=8501, help="The port on which it listens.")
def dashboard_command(database: str, port: int) -> None:
    """Open the dashboard (the same as `streamlit run dashboard/app.py`)."""
    # The dashboard is located, not imported: its modules are no part of the command line.
    spec = find_spec("dashboard")
    if spec is None or not spec.submodule_search_locations:
        raise click.ClickException(
            "the dashboard is not installed: run this from a checkout of the repository, see README.md"
        )
    app = Path(spec.submodule_search_locations[0]) / "app.py"
    arguments = [sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port)]
    environment = os.environ | {"INDUCTOR_WATCH_DB": database}
    sys.stdout.flush()
    # This process becomes Streamlit: a signal that ends it ends the server, and no process is left behind.
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - no shell is wanted


@click.command(epilog=example("mcp --db inductor-watch.db"))
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF CHECK]")
@click.option("--allow-measure", is_flag=True, help="Let agents run `check`, which measures two refs and stores them.")
@db_option
def mcp_command(options: tuple[str, ...], allow_measure: bool, database: str) -> None:
    """Serve the database to an agent over standard input and output, by the Model Context Protocol.

    An agent's host starts this command itself: docs/agents.md says how. The database is opened for reading.

    Options after -- are given to each `check`: `mcp --allow-measure -- --repo ~/pytorch --gpus 0`. An agent chooses
    refs, models, configs and minutes.
    """
    if options and not allow_measure:
        raise click.UsageError("options of `check` need --allow-measure")
    if find_spec("mcp") is None:
        raise click.UsageError("the server needs the library mcp, which is not installed: pip install 'mcp>=2.3,<3'")
    from jobs.agents.mcp_server import CheckTool, make_server

    check = CheckTool(database, options if allow_measure else None)
    server = make_server(open_store(database, write=False), check)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, check.quit)
    if sys.stdin.isatty():
        tell("waiting for a client of the Model Context Protocol on standard input (docs/agents.md)")
    server.run("stdio")
