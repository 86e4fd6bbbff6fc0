"""`inductor-watch regressions`: the records of what got worse, opened by verdicts or people.

A record has a pinned base. A person closes it, or `detect` where two runs in a row are back at the base's level.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobs.options import branch_option, dashboard_option, db_option, json_option

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from db.regressions.records import RegressionInfo

F = TypeVar("F", bound=Callable[..., Any])

#: What `close --as` says, and the state that it means.
_CLOSINGS = {"fixed": "fixed", "expected": "expected", "false-alarm": "false_alarm"}
#: What a closed record becomes when somebody takes it up again.
_REOPENED = {"fixed": "returned", "expected": "acknowledged", "false_alarm": "acknowledged"}

_ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")
_author = click.option("--author", help="Who says so [INDUCTOR_WATCH_AUTHOR, GITHUB_ACTOR, git's user.name, the user].")
_note = click.option("--note", "text", default="", help="Why.")
_owner = click.option("--owner", help="Who takes care of it; empty for nobody.")
_link = click.option("--link", help="Where it is dealt with: an http(s) address; empty for none.")


def _moving(function: F) -> F:
    """The options of every verb that moves records to another state."""
    for decorate in (db_option, _link, _owner, _author, _note, _ids):
        function = decorate(function)
    return function


@click.group(
    help="The records of what got worse. A record has a pinned base and clears itself never: a person closes it, or `detect` "
    "finds that it is fixed. ID is a record's name or a unique beginning of it."
)
def command() -> None:
    """The group of all that is said about records."""


@command.command(name="list", help="Records, the one opened last first; open ones unless --all.")
@click.option("--all", "with_closed", is_flag=True, help="Closed ones, too.")
@branch_option
@db_option
@json_option
def list_(with_closed: bool, branch: str | None, database: str, as_json: bool) -> None:
    """Prints a row a record."""
    from jobs.output.tables import add_row, console, make_table
    from jobs.regressions.text import change_of, info_json

    records, names = _records(database, branch, with_closed)
    if as_json:
        _print_json([info_json(info, names[info.cell_id]) for info in records])
        return
    if not records:
        click.echo("no records" if with_closed else "no open records (--all shows closed ones)")
        return
    table = make_table("id", "state", "cell", "kind", "change", "onset", "opened", "owner")
    for info in records:
        onset = f"{info.branch}@{(info.onset_commit or '')[:10]}"
        known = (info.regression_id, info.state, names[info.cell_id], info.kind, change_of(info), onset)
        add_row(table, *known, f"{info.opened_at:%Y-%m-%d}", info.owner)
    console().print(table)


@command.command(
    help="One record: state, pinned base, onset, the commits in between, history, how to measure it again."
)
@click.argument("name", metavar="ID")
@db_option
@json_option
def show(name: str, database: str, as_json: bool) -> None:
    """Prints all that is known of a record."""
    from analysis.history.record import record_of
    from db.engine import open_store
    from db.regressions.records import find_regression
    from jobs.regressions.text import record_json, record_text

    with open_store(database, write=False).connect() as connection:
        record = record_of(connection, find_regression(connection, name))
    if as_json:
        _print_json(record_json(record))
    else:
        click.echo(record_text(record), nl=False)


@command.command(help="Write the records as an Atom feed, for any feed reader.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The file to write.")
@branch_option
@dashboard_option
@db_option
def feed(out: Path, branch: str | None, dashboard_url: str, database: str) -> None:
    """Writes the file in one step: a reader sees the old one or the new one."""
    from collector.output_file import write_output
    from jobs.regressions.text import atom

    records, names = _records(database, branch, with_closed=True)
    write_output(out, atom(records, names, dashboard_url))
    click.echo(f"{out}: {len(records)} records")


@command.command(help="Look for change points in the histories and bring the records up to date.")
@branch_option
@_author
@db_option
@json_option
def detect(branch: str | None, author: str | None, database: str, as_json: bool) -> None:
    """Opens records for alerts, takes returned ones up again, and says what became of them."""
    from dataclasses import asdict

    from analysis.history.alerts import survey
    from db.engine import open_store
    from jobs.git.authors import author_of
    from jobs.regressions.recording import record_alerts

    engine = open_store(database, write=True)
    alerts = survey(engine, branch=branch).alerts
    done = record_alerts(engine, alerts, author=author_of(author), now=_now())
    if as_json:
        click.echo(json.dumps({"alerts": len(alerts), **asdict(done)}, indent=2))
        return
    counts = {name: len(names) for name, names in asdict(done).items()}
    pending = sum(alert.certainty == "pending" for alert in alerts)
    among = f", {pending} of them pending" if pending else ""
    click.echo(
        f"{len(alerts)} alerts{among}; records: " + ", ".join(f"{count} {name}" for name, count in counts.items())
    )
    if done.opened or done.returned:
        click.echo("look at them: inductor-watch regressions list")


@command.command(
    name="open", help="Open a record for every cell that regressed or broke from BASE to NEW, or for those named."
)
@click.argument("base")
@click.argument("new")
@click.option("--cell", "cells", multiple=True, help="A cell as `compare` prints it, or its cell_id; repeatable.")
@_note
@_author
@db_option
@json_option
def open_(
    base: str, new: str, cells: tuple[str, ...], text: str, author: str | None, database: str, as_json: bool
) -> None:
    """Opens what the verdicts or a person say."""
    from db.engine import open_store
    from jobs.git.authors import author_of
    from jobs.output.terminal import one_line
    from jobs.regressions.opening import open_from_sides

    engine = open_store(database, write=True)
    done = open_from_sides(engine, base, new, cells, at=_now(), author=author_of(author), text=text)
    if as_json:
        records = [info.regression_id for info in done.records]
        click.echo(json.dumps({"records": records, "opened": done.new, "left_out": done.left_out}, indent=2))
        return
    for info in done.records:
        click.echo(f"{info.regression_id}  {'opened' if info.regression_id in done.new else f'known, {info.state}'}")
    for line in done.left_out:
        click.echo(one_line(f"left out: {line}"))
    if not done.records and not done.left_out:
        click.echo("nothing regressed or broke: no record opened (--cell NAME opens one anyway)")


@command.command(help="It is real: somebody has measured it again.")
@_moving
def confirm(**options: Any) -> None:
    """Moves records to `confirmed`."""
    _move(lambda info: "confirmed", **options)


@command.command(help="Somebody knows of it and takes care of it.")
@_moving
def ack(**options: Any) -> None:
    """Moves records to `acknowledged`."""
    _move(lambda info: "acknowledged", **options)


@command.command(help="Nobody has to look at it any more: fixed, expected, or a false alarm.")
@click.option("--as", "reason", required=True, type=click.Choice(list(_CLOSINGS)), help="Why it is closed.")
@_moving
def close(reason: str, **options: Any) -> None:
    """Moves records to a closed state."""
    _move(lambda info: _CLOSINGS[reason], **options)


@command.command(help="Take a closed record up again: a fixed one has returned, any other is acknowledged.")
@_moving
def reopen(**options: Any) -> None:
    """Moves closed records to an open state."""
    _move(lambda info: _REOPENED.get(info.state, "returned"), **options)


@command.command(help="Add a text to a record's history.")
@click.argument("name", metavar="ID")
@click.argument("text")
@_author
@db_option
def note(name: str, text: str, author: str | None, database: str) -> None:
    """Writes a note and changes no state."""
    _annotate((name,), author, database, text=text)


@command.command(name="set", help="Change the owner or the link of records.")
@_ids
@_owner
@_link
@_author
@db_option
def set_(ids: tuple[str, ...], owner: str | None, link: str | None, author: str | None, database: str) -> None:
    """Writes owner and link, with who did it in the history."""
    if owner is None and link is None:
        raise click.UsageError("pass --owner NAME or --link URL; an empty one removes it")
    _annotate(ids, author, database, owner=owner, link=link)


@command.command(
    help="One GitHub issue for each alert: the open records of one onset; opened, brought up to date, closed."
)
@click.option("--repo", required=True, metavar="OWNER/REPO", help="Where the issues go. Needs GITHUB_TOKEN.")
@branch_option
@dashboard_option
@click.option("--dry-run", is_flag=True, help="Print the issues and write nothing.")
@_author
@db_option
def publish(
    repo: str, branch: str | None, dashboard_url: str, dry_run: bool, author: str | None, database: str
) -> None:
    """Writes issues and remembers their addresses in the records."""
    from db.engine import open_store
    from jobs.git.authors import author_of
    from jobs.github.api import GitHub, check_repo
    from jobs.github.issues import issues_of, publish_issues

    check_repo(repo)
    github = None if dry_run else GitHub.from_environment()
    engine = open_store(database, write=not dry_run)
    with engine.connect() as connection:
        issues = issues_of(connection, branch, dashboard_url)
    if github is None:
        for issue in issues:
            click.echo(f"{issue.title}\n\n{issue.body}")
        return
    for done in publish_issues(engine, github, repo, issues, at=_now(), author=author_of(author)):
        click.echo(f"issue {done.word}: {done.url}")
    if not issues:
        click.echo("no records to publish")


def _records(database: str, branch: str | None, with_closed: bool) -> tuple[list[RegressionInfo], dict[str, str]]:
    """The records, and their cells as people write them by cell_id."""
    from analysis.history.record import cell_of
    from db.engine import open_store
    from db.regressions.records import list_regressions

    with open_store(database, write=False).connect() as connection:
        records = list_regressions(connection, open_only=not with_closed, branch=branch)
        return records, {info.cell_id: str(cell_of(connection, info.cell_id) or info.cell_id) for info in records}


def _move(
    state_of: Callable[[RegressionInfo], str],
    *,
    ids: tuple[str, ...],
    text: str,
    author: str | None,
    owner: str | None,
    link: str | None,
    database: str,
) -> None:
    """Moves all records or none, and prints the state of each."""
    from db.regressions.records import change_state, find_regression

    def move(connection: Connection, name: str, **event: Any) -> RegressionInfo:
        return change_state(connection, name, state_of(find_regression(connection, name)), **event)

    _change(move, ids, author, database, text=text, owner=owner, link=link)


def _annotate(ids: tuple[str, ...], author: str | None, database: str, **event: Any) -> None:
    """Adds a text, an owner or a link to all records or none."""
    from db.regressions.records import note_regression

    _change(note_regression, ids, author, database, **event)


def _change(
    write: Callable[..., RegressionInfo], ids: tuple[str, ...], author: str | None, database: str, **event: Any
) -> None:
    from db.engine import open_store
    from db.regressions.records import find_regression
    from jobs.git.authors import author_of

    event |= {"at": _now(), "author": author_of(author)}
    with open_store(database, write=True).begin() as connection:
        names = dict.fromkeys(find_regression(connection, name).regression_id for name in ids)
        done = [write(connection, name, **event) for name in names]
    for info in done:
        click.echo(f"{info.regression_id}  {info.state}")


def _print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, default=datetime.isoformat))


def _now() -> datetime:
    return datetime.now(UTC)
