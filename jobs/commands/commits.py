"""`inductor-watch commits`: a repository's history in the database: what landed, was reverted, and landed again."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobs.options import Renamed, db_option, json_option

if TYPE_CHECKING:
    from db.commits.ranges import CommitEntry, Landing

_REPO = "pytorch/pytorch"


@click.group(help="The commits of the repository under watch: import, list, show; where branches started.")
def command() -> None:
    """The group of the verbs about commits."""


@command.command(name="import", help="Read a clone's history into the database. A later import adds what is new.")
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
@click.option("--repo", default=_REPO, show_default=True, help="The repository's name in the database.")
@click.option("--needed", is_flag=True, help="Only the commits from the oldest to the newest measured one.")
@click.option(
    "--branch",
    "branches",
    multiple=True,
    metavar="NAME",
    help="Store where this branch left the main line; repeatable.",
)
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
    needed: bool,
    branches: tuple[str, ...],
    replace: bool,
    database: str,
    as_json: bool,
) -> None:
    """Stores the history in one transaction and prints the counts."""
    from db.commits.branch_starts import check_repo
    from db.engine import open_store
    from db.errors import one_line
    from jobs.git.commit_import import Wanted, import_commits, read_history
    from jobs.git.log import Repository

    repository = Repository(clone)
    wanted = Wanted(check_repo(repo), ref or repository.main_ref(), path, needed, branches, replace)
    history = read_history(repository, wanted)  # before a database is made for nothing
    report = import_commits(open_store(database, write=True), repository, wanted, history)
    if as_json:
        names = {"repo": wanted.repo, "ref": wanted.ref, "tip": history.tip}
        _echo_json({**names, **asdict(report), "starts": history.starts})
        return
    click.echo(
        f"{wanted.repo} up to {one_line(wanted.ref)} ({history.tip[:10]}), {report.line} commits: {report.new} new,"
        f" {report.updated} updated, {report.unchanged} unchanged; {report.reverts} reverts, {report.relands} relands"
    )
    if kept_out := _kept_out(asdict(report)):
        click.echo(f"links left out, where a message names {kept_out}")
    if report.tags:
        click.echo(f"{_count(report.tags, 'tag')} that a side of a comparison can be called by")
    for name, sha in history.starts.items():
        click.echo(f"{one_line(name)} starts at {sha[:10]}")


def _kept_out(counts: dict[str, int]) -> str:
    words = {
        "unknown": "a commit that is not on this line",
        "ambiguous": "several commits by one beginning",
        "misdirected": "itself or a later commit",
        "left_out": "a commit that was not imported",
    }
    return ", ".join(f"{text} ({counts[name]})" for name, text in words.items() if counts[name])


@command.command(name="list", help="Imported commits, newest first; a range, a pull request or a search.")
@click.option("--since", metavar="DATE", help="Only commits that landed on this day or later, e.g. 2026-08-01.")
@click.option(
    "--between", nargs=2, metavar="BASE NEW", help="What landed after BASE up to NEW, oldest first: the blame range."
)
@click.option("--pr", type=click.IntRange(1, 999_999_999), help="The landings and reverts of this pull request.")
@click.option("--search", metavar="TEXT", help="The beginning of a sha, a pull request's number, or words of a title.")
@click.option("--repo", help="Only this repository [all].")
@click.option(
    "--limit", type=click.IntRange(min=1), default=30, show_default=True, help="Commits to list; a range is whole."
)
@db_option
@json_option
def list_(
    since: str | None,
    between: tuple[str, str] | None,
    pr: int | None,
    search: str | None,
    repo: str | None,
    limit: int,
    database: str,
    as_json: bool,
) -> None:
    """Prints a line a commit."""
    from db.commits.ranges import commit_range, find_commits, list_commits
    from db.engine import open_store

    if sum(one is not None for one in (since, between, pr, search)) > 1:
        raise click.UsageError("use one of --since, --between, --pr and --search")
    epoch = _epoch(since)
    engine = open_store(database, write=False)
    if pr is not None:
        _story(engine, pr, repo, as_json)
        return
    if between:
        found = commit_range(engine, *between, repo)
        rest = found.distance - len(found.commits)
        _print(
            found.commits, as_json, f"{rest} more commits landed between them, which are not imported" if rest else ""
        )
        if not found.distance and not as_json:
            click.echo("nothing landed between the two: name the older commit first")
        return
    if search is not None:
        _print(find_commits(engine, search, limit, repo), as_json, none="no such commit in the database")
        return
    none = "no commits: read some with `inductor-watch commits import --git PATH`"
    _print(list_commits(engine, repo=repo, since=epoch, limit=limit), as_json, none=none)


def _epoch(text: str | None) -> float | None:
    from db.queries.moments import to_epoch

    try:
        return None if text is None else to_epoch(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no date: write 2026-08-01 or 2026-08-01T12:00", param_hint="--since"
        ) from error


@command.command(help="A commit with its links, or the story of a pull request.")
@click.argument("what", metavar="SHA|PR")
@click.option("--repo", help="Only this repository [all].")
@db_option
@json_option
def show(what: str, repo: str | None, database: str, as_json: bool) -> None:
    """Prints a commit, and what reverted it or landed it again; of digits that are both, the pull request."""
    from db.commits.ranges import find_commit, landings
    from db.engine import open_store

    engine = open_store(database, write=False)
    number = what.removeprefix("#")
    is_number = number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0
    if is_number and (what.startswith("#") or landings(engine, int(number), repo)):
        _story(engine, int(number), repo, as_json)
        return
    entry = find_commit(engine, what, repo)
    if as_json:
        _echo_json(asdict(entry))
        return
    for line in _details(entry):
        click.echo(line)


@command.command(help="Show where a branch left the main line, or store it with --base. Without NAME all branches.")
@click.argument("name", required=False)
@click.option(
    "--base",
    "start",
    cls=Renamed,
    former=["--start"],
    metavar="SHA",
    help="The commit at which the branch left the main line.",
)
@click.option("--repo", default=_REPO, show_default=True, help="The repository of the branch.")
@db_option
@json_option
def branch(name: str | None, start: str | None, repo: str, database: str, as_json: bool) -> None:
    """Stores a branch's start where one is given, and prints what is known."""
    from db.commits.branch_starts import branch_starts, check_repo, set_branch_start
    from db.engine import open_store
    from db.errors import one_line

    if start is not None and name is None:
        raise click.UsageError("--base needs the NAME of a branch")
    engine = open_store(database, write=start is not None)
    if start is not None and name is not None:
        set_branch_start(engine, check_repo(repo), name, start)
    branches = branch_starts(engine, name)
    if as_json:
        starts = [(one, asdict(one.start) if one.start else None) for one in branches]
        _echo_json([{"repo": one.repo, "branch": one.name, "start": commit} for one, commit in starts])
        return
    for one in branches:
        click.echo(f"{one_line(one.repo)}  {one_line(one.name)}  {_line(one.start) if one.start else 'base not known'}")
    if not branches:
        click.echo("no such branch in the database" if name else "no branches in the database")


def _story(engine: Any, pr: int, repo: str | None, as_json: bool) -> None:
    from db.commits.ranges import landings

    events = landings(engine, pr, repo)
    if as_json:
        _echo_json([{"kind": one.kind, "again": one.again, **asdict(one.commit)} for one in events])
        return
    reverts = sum(one.kind == "revert" for one in events)
    click.echo(f"#{pr}: {_count(len(events) - reverts, 'landing')}, {_count(reverts, 'revert')}")
    for one in events:
        click.echo(f"  {_word(one):<13} {_line(one.commit)}")


def _word(one: Landing) -> str:
    return "reverted" if one.kind == "revert" else "landed again" if one.again else "landed"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print(entries: list[CommitEntry] | tuple[CommitEntry, ...], as_json: bool, more: str = "", none: str = "") -> None:
    if as_json:
        _echo_json([asdict(entry) for entry in entries])
        if more:
            click.echo(more, err=True)
        return
    for entry in entries:
        click.echo(_line(entry))
    if more or (none and not entries):
        click.echo(more or none)


def _line(entry: CommitEntry) -> str:
    from db.errors import one_line

    links = {"reverted by": entry.reverted_by, "relanded by": entry.relanded_by}
    marks = "".join(f"  [{word} {', '.join(sha[:10] for sha in shas)}]" for word, shas in links.items() if shas)
    return f"{entry.sha[:10]}  {_day(entry.committed_at)}  {one_line(entry.title or '', 100)}{marks}"


def _details(entry: CommitEntry) -> list[str]:
    from db.errors import one_line

    place = "not known" if entry.position is None else str(entry.position)
    facts = {
        "title": one_line(entry.title or "not known", 500),
        "pull request": f"#{entry.pr_number}" if entry.pr_number else "not known",
        "place": f"{place} in {one_line(entry.repo)}",
        "written": _moment(entry.author_date),
        "landed": _moment(entry.committed_at),
    }
    links = {
        "reverts": entry.reverts,
        "reverted by": entry.reverted_by,
        "relands": entry.relands,
        "relanded by": entry.relanded_by,
    }
    facts |= {word: ", ".join(sha[:10] for sha in shas) for word, shas in links.items() if shas}
    if entry.tags:
        facts["tags"] = one_line(", ".join(entry.tags), 200)
    return [entry.sha, *(f"  {word:<13} {text}" for word, text in facts.items())]


def _day(moment: datetime | None) -> str:
    return "no date   " if moment is None else moment.date().isoformat()


def _moment(moment: datetime | None) -> str:
    return "not known" if moment is None else moment.isoformat(sep=" ", timespec="seconds")


def _echo_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, default=datetime.isoformat))
