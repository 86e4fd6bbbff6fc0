"""`inductor-watch ingest`, `import`, `export` and `commits`: fill the database, write sides to files, and read histories."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click
from sqlalchemy import Engine

from collector.bundle import check_bundle
from collector.configs import parse_config
from collector.usage_errors import BundleError
from db.commits.commit_history import (
    CommitEntry,
    Landing,
    branch_starts,
    check_repo,
    commit_range,
    find_commit,
    find_commits,
    landings,
    list_commits,
    set_branch_start,
)
from db.engine import open_store
from db.exporter import Format, export_sides, write_stream
from db.importing.importer import ImportedRun, ImportReport, Provenance, import_files, store
from db.importing.pytorch_names import Given
from db.ingest import IngestReport, ingest_bundle
from jobs import tool_version
from jobs.bisect.search import LOG_NAME
from jobs.git_log import Repository, read_history
from jobs.options import (
    INPUT_FILE,
    PHASES,
    POSITIVE,
    Moment,
    Storage,
    db_option,
    example,
    json_option,
    repeatable,
    storage_options,
)
from jobs.output.terminal import one_line, print_json, print_lines, several, tell, write_outputs
from jobs.plan.planning import Plan
from jobs.plan.shards import load_night, merge_night
from jobs.requested_options import label_option

#: Seconds by which the clock of a host that measured may be ahead of this one.
_SKEW_S = 600
#: The most runs older than stored runs of their testbeds that are named one by one.
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

    Exit code 1 if some could not be stored, 2 if none could. A bundle of which nothing can be read but its first line counts
    as not stored.
    """
    if github_output and not plan_file:
        raise click.UsageError("--github-output goes with --plan: name the night's plan.json, or leave it out")
    plan = load_night(plan_file) if plan_file else None
    paths, bad, engine = find_bundles(bundles), 0, None
    if not paths and not plan:
        raise BundleError(f"no bundles in {' or '.join(map(str, bundles))}: name a folder of .jsonl or .jsonl.gz files")
    reports = {}
    for path in paths:
        try:
            check_bundle(path)  # before a database is made for nothing
            engine = engine or open_store(database, write=True)
            reports[path] = report = _ingest(engine, path, as_json)
            if report.damage and not report.new + report.updated + report.unchanged:
                bad += 1
                tell(f"{path}: no measurement in it could be stored")
        except BundleError as error:
            bad += 1
            if as_json:
                click.echo(json.dumps({"bundle": str(path), "problem": str(error)}))
            tell(f"inductor-watch: {error}")
    stored = {report.run_id for report in reports.values()}
    # Old bundles of one call may come in any order, which says nothing about clocks.
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
    """Merge the shards of a night; the bundle of its missing cells goes into `folder`."""
    merged = merge_night(engine, plan, folder)
    if as_json:
        click.echo(json.dumps({**asdict(merged), "bundle": str(merged.bundle or "")}))
    else:
        print_lines([str(merged)])
    if github_output:
        write_outputs({"night": merged.night, "base": merged.base, "runs": str(merged.runs), "lost": str(merged.lost)})


def _newest_start() -> float:
    """Return the latest start of a run that is accepted, in seconds since 1970."""
    return time.time() + _SKEW_S


def find_bundles(paths: tuple[Path, ...]) -> list[Path]:
    """Return the files among the paths, and the bundles below the folders among them, without logs of bisections."""
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

    Each problem is printed in a line; exit code 2 if nothing can be read.
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
    if earlier := run.measurements - sum(run.statuses.values()):
        counts += f"; {earlier} of cells that were measured again"
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


_REPO = "pytorch/pytorch"
_repo_option = click.option("--repo", help="Only this repository [all].")


@click.group(epilog=example("commits import --git pytorch"))
def commits_command() -> None:
    """Import, list or show the commits of the repository under watch, or where branches started."""


@commits_command.command("import")
@click.option(
    "--git",
    "clone",
    required=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A clone with its whole history.",
)
@click.option("--path", help="Only commits that touch this path in the repository, e.g. torch/_inductor.")
@click.option("--ref", help="The main line [origin/main, main, origin/master, master or HEAD].")
@click.option("--repo", default=_REPO, help="The repository's name in the database.")
@repeatable("branch", "branches", "Store where this branch left the main line")
@click.option(
    "--replace", is_flag=True, help="Accept a rewritten main line: commits that are not on it lose their place."
)
@db_option
@json_option
def import_(
    clone: Path,
    path: str | None,
    ref: str | None,
    repo: str,
    branches: tuple[str, ...],
    replace: bool,
    database: str,
    as_json: bool,
) -> None:
    """Read a clone's history into the database, all of it or nothing. A later import adds what is new."""
    # Before a database is made for nothing.
    history = read_history(Repository(clone), check_repo(repo), ref, path, branches)
    report = history.store(open_store(database, write=True), replace=replace)
    if as_json:
        names = {"repo": history.repo, "ref": history.ref, "tip": history.tip}
        print_json({**names, **asdict(report), "starts": history.starts})
        return
    lines = [
        f"{history.repo} up to {history.ref} ({history.tip[:10]}), {report.line} commits: {report.new} new,"
        f" {report.updated} updated, {report.unchanged} unchanged; {report.reverts} reverts, {report.relands} relands"
    ]
    left_out = {
        "a commit that is not on this line": report.unknown,
        "several commits by one beginning": report.ambiguous,
        "itself or a later commit": report.misdirected,
        "a commit that was not imported": report.left_out,
    }
    if counts := ", ".join(f"{text} ({count})" for text, count in left_out.items() if count):
        lines.append(f"links left out, where a message names {counts}")
    if report.tags:
        lines.append(f"{several(report.tags, 'tag')} that a side of a comparison can be called by")
    print_lines([*lines, *(f"{name} starts at {sha[:10]}" for name, sha in history.starts.items())])


@commits_command.command("list")
@click.option(
    "--since", type=Moment(), metavar="DATE", help="Only commits that landed on this day or later, e.g. 2026-08-01."
)
@click.option(
    "--between", nargs=2, metavar="BASE NEW", help="What landed after BASE up to NEW, oldest first: the blame range."
)
@click.option("--pr", type=click.IntRange(1, 999_999_999), help="The landings and reverts of this pull request.")
@click.option("--search", metavar="TEXT", help="The beginning of a sha, a pull request's number, or words of a title.")
@_repo_option
@click.option("--limit", type=POSITIVE, default=30, help="Commits to list; a range is whole.")
@db_option
@json_option
def list_(
    since: datetime | None,
    between: tuple[str, str] | None,
    pr: int | None,
    search: str | None,
    repo: str | None,
    limit: int,
    database: str,
    as_json: bool,
) -> None:
    """List imported commits, newest first: all, a range, a pull request or the results of a search."""
    if sum(one is not None for one in (since, between, pr, search)) > 1:
        raise click.UsageError("use one of --since, --between, --pr and --search")
    engine = open_store(database, write=False)
    if pr is not None:
        _show_story(engine, pr, repo, as_json)
    elif between:
        landed = commit_range(engine, *between, repo)
        none = "" if landed.distance else "nothing landed between the two: name the older commit first"
        _show_commit(landed.commits, as_json, none)
        if rest := landed.distance - len(landed.commits):
            click.echo(f"{rest} more commits landed between them, which are not imported", err=as_json)
    elif search is not None:
        _show_commit(find_commits(engine, search, limit, repo), as_json, "no such commit in the database")
    else:
        entries = list_commits(engine, repo=repo, since=since.timestamp() if since else None, limit=limit)
        _show_commit(entries, as_json, "no commits: read some with `inductor-watch commits import --git PATH`")


@commits_command.command()
@click.argument("what", metavar="SHA|PR")
@_repo_option
@db_option
@json_option
def show(what: str, repo: str | None, database: str, as_json: bool) -> None:
    """Show a commit with its links, or the story of a pull request. Digits that fit both name the pull request."""
    engine = open_store(database, write=False)
    number = what.removeprefix("#")
    is_number = number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0
    if is_number and (what.startswith("#") or landings(engine, int(number), repo)):
        _show_story(engine, int(number), repo, as_json)
        return
    entry = find_commit(engine, what, repo)
    if as_json:
        print_json(asdict(entry))
    else:
        print_lines(_details(entry))


@commits_command.command()
@click.argument("name", required=False)
@click.option(
    "--base",
    "start",
    metavar="SHA",
    help="The commit at which the branch left the main line.",
)
@click.option("--repo", default=_REPO, help="The repository of the branch.")
@db_option
@json_option
def branch(name: str | None, start: str | None, repo: str, database: str, as_json: bool) -> None:
    """Show where a branch left the main line, or store it with --base. Without NAME all branches."""
    if start is not None and name is None:
        raise click.UsageError("--base needs the NAME of a branch")
    engine = open_store(database, write=start is not None)
    if start is not None and name is not None:
        set_branch_start(engine, check_repo(repo), name, start)
    branches = branch_starts(engine, name)
    if as_json:
        starts = [(one, asdict(one.start) if one.start else None) for one in branches]
        print_json([{"repo": one.repo, "branch": one.name, "start": commit} for one, commit in starts])
        return
    print_lines(
        f"{one.repo}  {one.name}  {_commit_line(one.start) if one.start else 'base not known'}" for one in branches
    )
    if not branches:
        click.echo("no such branch in the database" if name else "no branches in the database")


def _show_story(engine: Any, pr: int, repo: str | None, as_json: bool) -> None:
    """Print the landings and reverts of a pull request."""
    events = landings(engine, pr, repo)
    if as_json:
        print_json([{"kind": one.kind, "again": one.again, **asdict(one.commit)} for one in events])
        return
    reverts = sum(one.kind == "revert" for one in events)
    click.echo(f"#{pr}: {several(len(events) - reverts, 'landing')}, {several(reverts, 'revert')}")
    print_lines(f"  {_word(one):<13} {_commit_line(one.commit)}" for one in events)


def _word(one: Landing) -> str:
    return "reverted" if one.kind == "revert" else "landed again" if one.again else "landed"


def _show_commit(entries: Sequence[CommitEntry], as_json: bool, none: str) -> None:
    """Print a line for each commit, or why there is none."""
    if as_json:
        print_json([asdict(entry) for entry in entries])
    else:
        print_lines([_commit_line(entry) for entry in entries] or [none] * bool(none))


def _commit_line(entry: CommitEntry) -> str:
    day = "no date   " if entry.committed_at is None else entry.committed_at.date().isoformat()
    marks = "".join(f"  [{word} {shas}]" for word, shas in entry.links.items() if word.endswith("by"))
    return f"{entry.sha[:10]}  {day}  {one_line(entry.title or '', 100)}{marks}"


def _details(entry: CommitEntry) -> list[str]:
    facts = {
        "title": one_line(entry.title or "not known", 500),
        "pull request": f"#{entry.pr_number}" if entry.pr_number else "not known",
        "place": f"{'not known' if entry.position is None else entry.position} in {entry.repo}",
        "written": _moment(entry.author_date),
        "landed": _moment(entry.committed_at),
        **entry.links,
    }
    if entry.tags:
        facts["tags"] = one_line(", ".join(entry.tags), 200)
    return [entry.sha, *(f"  {word:<13} {text}" for word, text in facts.items())]


def _moment(moment: datetime | None) -> str:
    return "not known" if moment is None else moment.isoformat(sep=" ", timespec="seconds")
