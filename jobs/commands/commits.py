"""`inductor-watch commits`: a repository's history in the database: what landed, was reverted, and landed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from db.commits.ranges import CommitEntry, Landing, commit_range, find_commit, find_commits, landings, list_commits
from db.commits.storing import branch_starts, check_repo, set_branch_start
from db.engine import open_store
from jobs.git_log import Repository, read_history
from jobs.options import POSITIVE, Moment, db_option, example, json_option, repeatable
from jobs.output.terminal import one_line, print_json, print_lines, several

_REPO = "pytorch/pytorch"
_repo_option = click.option("--repo", help="Only this repository [all].")


@click.group(epilog=example("commits import --git pytorch"))
def commits_command() -> None:
    """The commits of the repository under watch: import, list, show; where branches started."""


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
    """Imported commits, newest first; a range, a pull request or a search."""
    if sum(one is not None for one in (since, between, pr, search)) > 1:
        raise click.UsageError("use one of --since, --between, --pr and --search")
    engine = open_store(database, write=False)
    if pr is not None:
        _show_story(engine, pr, repo, as_json)
    elif between:
        landed = commit_range(engine, *between, repo)
        none = "" if landed.distance else "nothing landed between the two: name the older commit first"
        _show(landed.commits, as_json, none)
        if rest := landed.distance - len(landed.commits):
            click.echo(f"{rest} more commits landed between them, which are not imported", err=as_json)
    elif search is not None:
        _show(find_commits(engine, search, limit, repo), as_json, "no such commit in the database")
    else:
        entries = list_commits(engine, repo=repo, since=since.timestamp() if since else None, limit=limit)
        _show(entries, as_json, "no commits: read some with `inductor-watch commits import --git PATH`")


@commits_command.command()
@click.argument("what", metavar="SHA|PR")
@_repo_option
@db_option
@json_option
def show(what: str, repo: str | None, database: str, as_json: bool) -> None:
    """A commit with its links, or the story of a pull request. Digits that are both name the pull request."""
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
    print_lines(f"{one.repo}  {one.name}  {_line(one.start) if one.start else 'base not known'}" for one in branches)
    if not branches:
        click.echo("no such branch in the database" if name else "no branches in the database")


def _show_story(engine: Any, pr: int, repo: str | None, as_json: bool) -> None:
    """The landings and reverts of a pull request."""
    events = landings(engine, pr, repo)
    if as_json:
        print_json([{"kind": one.kind, "again": one.again, **asdict(one.commit)} for one in events])
        return
    reverts = sum(one.kind == "revert" for one in events)
    click.echo(f"#{pr}: {several(len(events) - reverts, 'landing')}, {several(reverts, 'revert')}")
    print_lines(f"  {_word(one):<13} {_line(one.commit)}" for one in events)


def _word(one: Landing) -> str:
    return "reverted" if one.kind == "revert" else "landed again" if one.again else "landed"


def _show(entries: Sequence[CommitEntry], as_json: bool, none: str) -> None:
    """A line a commit, or why there is none."""
    if as_json:
        print_json([asdict(entry) for entry in entries])
    else:
        print_lines([_line(entry) for entry in entries] or [none] * bool(none))


def _line(entry: CommitEntry) -> str:
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
