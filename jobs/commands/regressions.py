"""`inductor-watch regressions`: the records of regressions, opened by verdicts or people.

A record has a pinned base. A person closes it, or `detect` if two runs in a row are back at the base's level.
"""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from analysis.history.alerts import survey
from analysis.history.regression_record import Listed, by_commit, dimension_of, listed, record_of
from analysis.reports.facts import build_report
from collector.output_file import write_output
from db.engine import open_store
from db.queries.cells import EVERYTHING
from db.regression_records import RegressionInfo, change_state, find_regression, note_regression
from db.store_errors import counted
from jobs.github import GitHub, check_repo, issues_of, publish_issues
from jobs.options import OUTPUT_FILE, branch_option, dashboard_option, db_option, example, json_option, together
from jobs.output.tables import FittingTable, console, say
from jobs.output.terminal import print_json, print_lines
from jobs.regressions.notices import (
    NotDeliveredError,
    atom,
    change_of,
    channels_of,
    due,
    info_json,
    notice_of,
    record_json,
    record_text,
    tell_channels,
)
from jobs.regressions.recording import open_from_sides, record_alerts


def default_author() -> str:
    """Return git's `user.name`, else the name of the user, else `unknown`."""
    return _git_name() or _user() or "unknown"


def _git_name() -> str:
    try:
        done = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


#: The words of `close --as`, and the states that they mean.
_CLOSINGS = {"fixed": "fixed", "expected": "expected", "false-alarm": "false_alarm"}
#: The state of a closed record after somebody takes it up again.
_REOPENED = {"fixed": "returned", "expected": "acknowledged", "false_alarm": "acknowledged"}

_ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")
_author = click.option(
    "--author",
    envvar=["INDUCTOR_WATCH_AUTHOR", "GITHUB_ACTOR"],
    default=default_author,
    show_default=False,
    help="Who says so [INDUCTOR_WATCH_AUTHOR, GITHUB_ACTOR, git's user.name, the user].",
)
_note = click.option("--note", "text", default="", show_default=False, help="Why.")
_owner = click.option("--owner", help="Who takes care of it; empty for nobody.")
_link = click.option("--link", help="Where it is dealt with: an http(s) address; empty for none.")
#: The options of every verb that moves records to another state.
_moving = together(_ids, _note, _author, _owner, _link, db_option)


@click.group(epilog=example("regressions list"))
def regressions_command() -> None:
    """List, open, change or publish the records of regressions. ID is a record's name or a unique beginning of it.

    A record keeps its base and never closes by itself: a person closes it, or `detect` finds that it is fixed.
    """


@regressions_command.command("list")
@click.option("--all", "with_closed", is_flag=True, help="Closed ones, too.")
@branch_option
@db_option
@json_option
def list_(with_closed: bool, branch: str | None, database: str, as_json: bool) -> None:
    """List the open records (with --all closed ones, too) by the commit of their onset, newest first, largest change first."""
    records = _records(database, branch, with_closed)
    if as_json:
        print_json([info_json(one.info, one.name) for one in records])
        return
    if not records:
        click.echo("no records" if with_closed else "no open records (--all shows closed ones)")
        return
    out = console()
    for group in by_commit(records):
        since = f", {group.onset_at:%Y-%m-%d}" if group.onset_at else ""
        say(out, f"{group.branch}@{(group.commit or '')[:10]}{since}: {group.tally}")
        table = FittingTable(("id", "state", "cell", "dimension", "kind", "change", "owner"), spare=("kind", "owner"))
        for info, name in ((one.info, one.name) for one in group.records):
            table.add_row(
                info.regression_id, info.state, name, dimension_of(info), info.kind, change_of(info), info.owner
            )
        out.print(table)


def _records(database: str, branch: str | None, with_closed: bool) -> list[Listed]:
    records = listed(open_store(database, write=False), with_closed=with_closed)
    return [one for one in records if branch in (None, one.info.branch)]


@regressions_command.command()
@click.argument("name", metavar="ID")
@db_option
@json_option
def show(name: str, database: str, as_json: bool) -> None:
    """Show one record: state, pinned base, onset, the commits in between, history, how to measure it again."""
    with open_store(database, write=False).connect() as connection:
        record = record_of(connection, find_regression(connection, name))
    if as_json:
        print_json(record_json(record))
    else:
        click.echo(record_text(record), nl=False)


@regressions_command.command()
@click.option("--out", type=OUTPUT_FILE, required=True, help="The file to write.")
@branch_option
@dashboard_option
@db_option
def feed(out: Path, branch: str | None, dashboard_url: str, database: str) -> None:
    """Write the records as an Atom feed, for any feed reader."""
    records = _records(database, branch, with_closed=True)
    write_output(out, atom(records, dashboard_url))
    click.echo(f"{out}: {counted(len(records), 'record')}")


@regressions_command.command()
@branch_option
@_author
@db_option
@json_option
def detect(branch: str | None, author: str, database: str, as_json: bool) -> None:
    """Look for change points in the histories and bring the records up to date."""
    engine = open_store(database, write=True)
    alerts = survey(engine, branch=branch).alerts
    done = record_alerts(engine, alerts, author=author, now=datetime.now(UTC))
    if as_json:
        print_json({"alerts": len(alerts), **asdict(done)})
        return
    pending = sum(alert.certainty == "pending" for alert in alerts)
    among = f", {pending} of them pending" if pending else ""
    counts = ", ".join(f"{len(names)} {word}" for word, names in asdict(done).items())
    click.echo(f"{counted(len(alerts), 'alert')}{among}; records: {counts}")
    if done.opened or done.returned:
        click.echo("look at them: inductor-watch regressions list")


@regressions_command.command("open")
@click.argument("base")
@click.argument("new")
@click.option("--cell", "cells", multiple=True, help="A cell as `compare` prints it, or its cell_id; repeatable.")
@_note
@_author
@db_option
@json_option
def open_(base: str, new: str, cells: tuple[str, ...], text: str, author: str, database: str, as_json: bool) -> None:
    """Open a record for each dimension in which a cell regressed or broke from BASE to NEW, or for the cells named."""
    engine = open_store(database, write=True)
    done = open_from_sides(engine, base, new, cells, at=datetime.now(UTC), author=author, text=text)
    if as_json:
        records = [info.regression_id for info in done.records]
        print_json({"records": records, "opened": done.new, "left_out": done.left_out})
        return
    for info in done.records:
        click.echo(f"{info.regression_id}  {'opened' if info.regression_id in done.new else f'known, {info.state}'}")
    print_lines(f"left out: {line}" for line in done.left_out)
    if not done.records and not done.left_out:
        click.echo("nothing regressed or broke: no record opened (--cell NAME opens one anyway)")


@regressions_command.command()
@_moving
def confirm(**options: Any) -> None:
    """Confirm that records are real: somebody has measured them again."""
    _move(lambda state: "confirmed", **options)


@regressions_command.command()
@_moving
def ack(**options: Any) -> None:
    """Acknowledge records: somebody knows of them and takes care of them."""
    _move(lambda state: "acknowledged", **options)


@regressions_command.command()
@click.option("--as", "reason", required=True, type=click.Choice(list(_CLOSINGS)), help="Why it is closed.")
@_moving
def close(reason: str, **options: Any) -> None:
    """Close records that nobody has to look at any more: fixed, expected, or a false alarm."""
    _move(lambda state: _CLOSINGS[reason], **options)


@regressions_command.command()
@_moving
def reopen(**options: Any) -> None:
    """Take closed records up again: a fixed record has returned, any other record is acknowledged."""
    _move(lambda state: _REOPENED.get(state, "returned"), **options)


@regressions_command.command()
@click.argument("name", metavar="ID")
@click.argument("text")
@_author
@db_option
def note(name: str, **options: Any) -> None:
    """Add a text to a record's history."""
    _move(None, (name,), **options)


@regressions_command.command("set")
@_ids
@_owner
@_link
@_author
@db_option
def set_(owner: str | None, link: str | None, **options: Any) -> None:
    """Change the owner or the link of records."""
    if owner is None and link is None:
        raise click.UsageError("pass --owner NAME or --link URL; an empty one removes it")
    _move(None, owner=owner, link=link, **options)


def _move(state_after: Callable[[str], str] | None, ids: tuple[str, ...], database: str, **event: Any) -> None:
    """Add an event to all records or none, which moves each record to its next state; print the state of each."""
    event["at"] = datetime.now(UTC)
    done: list[RegressionInfo] = []
    with open_store(database, write=True).begin() as connection:
        records = {info.regression_id: info for info in (find_regression(connection, name) for name in ids)}
        for name, info in records.items():
            if state_after:
                done.append(change_state(connection, name, state_after(info.state), **event))
            else:
                done.append(note_regression(connection, name, **event))
    for info in done:
        click.echo(f"{info.regression_id}  {info.state}")


@regressions_command.command()
@click.option("--repo", required=True, metavar="OWNER/REPO", help="Where the issues go. Needs GITHUB_TOKEN.")
@branch_option
@dashboard_option
@click.option("--dry-run", is_flag=True, help="Print the issues and write nothing.")
@_author
@db_option
def publish(repo: str, branch: str | None, dashboard_url: str, dry_run: bool, author: str, database: str) -> None:
    """Open, update or close a GitHub issue for each alert: the records of one onset.

    The records remember the addresses of their issues.
    """
    check_repo(repo)
    github = None if dry_run else GitHub.from_environment()
    engine = open_store(database, write=not dry_run)
    with engine.connect() as connection:
        issues = issues_of(connection, branch, dashboard_url)
    if github is None:
        for issue in issues:
            click.echo(f"{issue.title}\n\n{issue.body}")
        return
    for word, url in publish_issues(engine, github, repo, issues, at=datetime.now(UTC), author=author):
        click.echo(f"issue {word}: {url}")
    if not issues:
        click.echo("no records to publish")


@regressions_command.command()
@click.argument("sides", nargs=-1, metavar="[BASE NEW]")
@branch_option
@dashboard_option
@click.option("--dry-run", is_flag=True, help="Print the message about all open records that nobody has answered.")
@_author
@db_option
def notify(
    sides: tuple[str, ...], branch: str | None, dashboard_url: str, dry_run: bool, author: str, database: str
) -> None:
    """Tell Slack, a webhook or an e-mail address of new regressions, each once; begin with the report of BASE and NEW.

    The environment names the channels (docs/ci.md). A message that a channel does not take is sent again by the next call.
    """
    if len(sides) not in (0, 2):
        raise click.UsageError("name two sides, BASE and NEW, or none")
    channels = [] if dry_run else channels_of()
    if not channels and not dry_run:
        raise click.UsageError(
            "no channel is set: set INDUCTOR_WATCH_SLACK_URL, INDUCTOR_WATCH_WEBHOOK_URL or INDUCTOR_WATCH_SMTP_URL"
        )
    engine = open_store(database, write=not dry_run)
    with engine.connect() as connection:
        first = build_report(connection, sides[0], sides[1], EVERYTHING, dashboard_url) if sides else None
        if dry_run:
            records = due(connection, "", branch)
            print_lines(
                notice_of(connection, records, first, dashboard_url).text.splitlines() if records else ["nothing new"]
            )
            return
    now, lost = datetime.now(UTC), 0
    for line, is_delivered in tell_channels(
        engine, channels, first, branch=branch, dashboard=dashboard_url, at=now, author=author
    ):
        click.echo(line if is_delivered else f"inductor-watch: {line}", err=not is_delivered)
        lost += not is_delivered
    if lost:
        raise SystemExit(NotDeliveredError.exit_code)
