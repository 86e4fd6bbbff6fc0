"""`inductor-watch import`: PyTorch's own nights, benchmark-v3 records and GraphNet's logs into bundles and the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collector.vocabulary import Phase
from jobs.options import db_option, json_option, label_option, no_store_option, out_option

if TYPE_CHECKING:
    from db.importing.importer import ImportedRun, ImportReport


@click.command(
    "import",
    help="Read files of benchmarks/dynamo, benchmark-v3 JSON and GraphNet logs. A file that is imported twice changes nothing.",
)
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
@click.option("--phase", type=click.Choice([phase.value for phase in Phase]), help="The phase, likewise.")
@click.option("--dtype", help="The dtype, likewise.")
@click.option("--device", help="The device, likewise.")
@click.option("--config", metavar="NAME[+key=value...]", help="The config, likewise.")
@out_option
@no_store_option
@db_option
@json_option
def command(
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
    out: Path,
    no_store: bool,
    database: str,
    as_json: bool,
) -> None:
    """Imports what can be read, and says a line for each file or row that cannot; exit code 2 if nothing can."""
    from collector.configs.spelling import parse_config
    from db.engine import open_store
    from db.importing.cells import Given
    from db.importing.importer import import_files, store
    from db.importing.runs import Provenance
    from jobs.cli import tool_version
    from jobs.commands.ingest import newest_start

    asked = Provenance(repo, branch, commit, date, git, label, tool_version())
    given = Given(suite, phase, dtype, device, parse_config(config) if config else None)
    report = import_files(files, asked, given, out)
    if not no_store and report.runs:
        store(open_store(database, write=True), report, newest_start())
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        _show(report)
    if report.is_empty:
        raise click.exceptions.Exit(2)


def _show(report: ImportReport) -> None:
    for file in report.files:
        if file.problem:
            click.echo(file.problem, err=True)
        else:
            click.echo(f"{file.file}: {file.rows} rows, {file.values} values")
    for problem in report.problems:
        click.echo(problem, err=True)
    for run in report.runs:
        click.echo(_line(run))
    if report.is_empty:
        click.echo("nothing could be imported", err=True)


def _line(run: ImportedRun) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(run.statuses.items()))
    bundle = f"bundle {run.bundle}" + ("" if run.is_new else " (was there)")
    line = f"run {run.run_id}  {run.branch}@{run.commit[:10]}: {run.measurements} measurements ({counts}); {bundle}"
    if run.stored is None:
        return line
    stored = run.stored
    return f"{line}; {stored.new} new, {stored.updated} updated, {stored.unchanged} unchanged in the database"
