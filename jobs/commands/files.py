"""Files into the database and out of it: `inductor-watch ingest`, `import` and `export`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import cast

import click
from sqlalchemy import Engine

from collector.bundle import check_bundle
from collector.configs import parse_config
from collector.usage_errors import BundleError
from db.engine import open_store
from db.exporter import Format, export_sides, write_stream
from db.importing.importer import ImportedRun, ImportReport, Provenance, import_files, store
from db.importing.pytorch_names import Given
from db.ingest import IngestReport, ingest_bundle
from jobs import tool_version
from jobs.bisect.search import LOG_NAME
from jobs.ci import write_outputs
from jobs.git_log import Repository
from jobs.measuring_options import label_option
from jobs.options import INPUT_FILE, PHASES, Storage, db_option, example, json_option, storage_options
from jobs.output.terminal import print_json, print_lines, several, tell
from jobs.plan.planning import Plan
from jobs.plan.shards import load_night, merge_night

#: Seconds by which the clock of a host that measured may be ahead of this one.
_SKEW_S = 600
#: Runs that are older than stored ones of their testbeds and are named one by one.
_LATE = 3


@click.command(epilog=example("ingest runs"))
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "plan_file",
    type=INPUT_FILE,
    help="The plan.json of `plan --shards`: its cells that came with no bundle of the night count as missing. "
    "Exit code 3 if none came.",
)
@click.option("--github-output", is_flag=True, help="With --plan: night, base, runs and lost as a step's outputs.")
@db_option
@json_option
def ingest_command(
    bundles: tuple[Path, ...], plan_file: Path | None, github_output: bool, database: str, as_json: bool
) -> None:
    """Put bundles into the database; the same bundle twice changes nothing.

    Exit code 1 if some could not be stored, 2 if none could.
    """
    if github_output and not plan_file:
        raise click.UsageError("--github-output goes with --plan: name the night's plan.json, or leave it out")
    plan = load_night(plan_file) if plan_file else None
    paths, bad, engine = find_bundles(bundles), 0, None
    reports = {}
    for path in paths:
        try:
            check_bundle(path)  # before a database is made for nothing
            engine = engine or open_store(database, write=True)
            reports[path] = _ingest(engine, path, as_json)
        except BundleError as error:
            bad += 1
            if as_json:
                click.echo(json.dumps({"bundle": str(path), "problem": str(error)}))
            tell(f"inductor-watch: {error}")
    stored = {report.run_id for report in reports.values()}
    # In one call old bundles may come in any order: that tells nothing of clocks.
    late = [
        f"{path}: run {one.run_id} {one.out_of_order}"
        for path, one in reports.items()
        if one.newer not in {*stored, ""}
    ]
    print_lines(late, most=_LATE, err=True)
    if plan:
        folder = next((path for path in bundles if path.is_dir()), bundles[0].parent)
        _merge(engine or open_store(database, write=True), plan, folder, github_output, as_json)
    if bad and len(paths) > 1:
        problem = f"{bad} of {len(paths)} bundles could not be stored: repair or remove them"
        click.echo(problem + "; the others are in the database" * (bad < len(paths)), err=True)
    if bad:
        raise click.exceptions.Exit(1 if bad < len(paths) else 2)


def _ingest(engine: Engine, path: Path, as_json: bool) -> IngestReport:
    report = ingest_bundle(engine, path, not_after=_newest_start())
    if as_json:
        click.echo(json.dumps({"bundle": str(path), **asdict(report)}))
        return report
    counts = f"{report.new} new, {report.updated} updated, {report.unchanged} unchanged"
    print_lines([f"{path}: run {report.run_id}: {counts}"])
    print_lines((f"{path}: {problem}; what was whole is in the database" for problem in report.damage), err=True)
    print_lines((f"{path}: {line}: not stored, and the file still has it" for line in report.secrets), err=True)
    print_lines((f"{path}: {line}" for line in report.replaced), err=True)
    if report.renamed_night:
        tell(f"{path}: another night has its name: this one is night {report.renamed_night}")
    return report


def _merge(engine: Engine, plan: Plan, folder: Path, github_output: bool, as_json: bool) -> None:
    """Puts the shards of a night together; the bundle of its missing cells goes into `folder`."""
    merged = merge_night(engine, plan, folder)
    if as_json:
        click.echo(json.dumps({**asdict(merged), "bundle": str(merged.bundle or "")}))
    else:
        print_lines([str(merged)])
    if github_output:
        write_outputs({"night": merged.night, "base": merged.base, "runs": str(merged.runs), "lost": str(merged.lost)})


def _newest_start() -> float:
    """The latest start of a run that is accepted, in seconds since 1970."""
    return time.time() + _SKEW_S


def find_bundles(paths: tuple[Path, ...]) -> list[Path]:
    """The files among the paths, and every bundle below the folders among them; the log of a bisection is none."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.rglob("*.jsonl*")) if path.is_dir() else [path]
    return [file for file in files if not file.name.endswith(".partial") and file.name != LOG_NAME]


@click.command(epilog=example("import test-reports --commit 4f2b1c9 --branch main --date 2026-11-20"))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--commit", help="The commit that was measured [the file's own, else that of --git].")
@click.option("--branch", help="Its branch [the file's own, else that of --git].")
@click.option("--date", help="When it was measured, ISO 8601 [the file's own, else the date of the commit in --git].")
@click.option("--repo", help="Its repository [the file's own, else pytorch/pytorch].")
@click.option(
    "--git",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A clone that has the commit, branch and date which the files lack.",
)
@label_option
@click.option("--suite", help="The suite, where neither the file nor its name has it.")
@click.option("--phase", type=PHASES, help="The phase, likewise.")
@click.option("--dtype", help="The dtype, likewise.")
@click.option("--device", help="The device, likewise.")
@click.option("--config", metavar="NAME[+key=value...]", help="The config, likewise.")
@storage_options
@json_option
def import_command(
    files: tuple[Path, ...],
    commit: str | None,
    branch: str | None,
    date: str | None,
    repo: str | None,
    git: Path | None,
    label: str,
    suite: str | None,
    phase: str | None,
    dtype: str | None,
    device: str | None,
    config: str | None,
    storage: Storage,
    as_json: bool,
) -> None:
    """Read files of benchmarks/dynamo, benchmark-v3 JSON and GraphNet logs. A file that is imported twice changes nothing.

    What cannot be read is a line each; exit code 2 if nothing can.
    """
    clone = Repository(git) if git else None
    asked = Provenance(repo, branch, commit, date, clone, label, tool_version())
    given = Given(suite, phase, dtype, device, parse_config(config) if config else None)
    report = import_files(files, asked, given, storage.out)
    if storage.target and report.runs:
        store(open_store(storage.target, write=True), report, _newest_start())
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)
    if report.is_empty:
        raise click.exceptions.Exit(2)


def _show(report: ImportReport) -> None:
    for file in report.files:
        read = f"{file.file}: {several(file.rows, 'row')}, {several(file.values, 'value')}"
        print_lines([file.problem or read], err=bool(file.problem))
    for problem in report.problems:
        print_lines([problem], err=True)
    for run in report.runs:
        print_lines([_line(run)])
    if report.is_empty:
        click.echo("nothing could be imported", err=True)


def _line(run: ImportedRun) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(run.statuses.items()))
    bundle = f"bundle {run.bundle}" + ("" if run.is_new else " (was there)")
    measured = f"{several(run.measurements, 'measurement')} ({counts})"
    line = f"run {run.run_id}  {run.branch}@{run.commit[:10]}: {measured}; {bundle}"
    if stored := run.stored:
        line += f"; {stored.new} new, {stored.updated} updated, {stored.unchanged} unchanged in the database"
    return line


@click.command(epilog=example("export latest --format csv --out night.csv"))
@click.argument("sides", nargs=-1, metavar="[SIDE]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["v3", "csv", "bundle", "parquet"]),
    default="v3",
    help="PyTorch's benchmark-v3 records, a row a cell, or a bundle a run.",
)
@click.option(
    "-o",
    "--out",
    "output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The file, for bundles the folder; - is standard output. [standard output; none for bundle and parquet]",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@db_option
@json_option
def export_command(
    sides: tuple[str, ...], form: str, output: Path | None, force: bool, database: str, as_json: bool
) -> None:
    """Write SIDEs, as `compare` takes them, to a file [latest].

    v3 and bundle have whole runs, csv and parquet the newest measurement of each cell of a side.
    """
    if is_stream := output is None or str(output) == "-":
        if form in ("bundle", "parquet"):
            raise click.UsageError(f"{form} is binary: name {'a folder' if form == 'bundle' else 'a file'} with -o")
        if as_json:
            raise click.UsageError("--json lists the written files: name one with -o")
    sides, chosen = sides or ("latest",), cast("Format", form)
    with open_store(database, write=False).connect() as connection:
        if output is None or is_stream:
            write_stream(connection, sides, chosen, sys.stdout.buffer)
            return
        written = export_sides(connection, sides, chosen, output, force)
    if as_json:
        print_json([asdict(item) for item in written])
        return
    for item in written:
        click.echo(f"{item.file}: {item.rows} rows of {', '.join(item.run_ids)}")
