"""`inductor-watch report` and `publish`: report on two sides, and write the newest nights as a static site."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from analysis.reports.facts import Report, build_report
from analysis.reports.html_report import PictureError, converter, html, png, svg
from analysis.reports.markdown_report import BODY_BYTES, SUMMARY_BYTES, markdown
from analysis.site.publishing import NIGHTS, publish
from collector.output_file import write_output
from db.engine import open_store
from db.queries.cells import CellFilter, expand_patterns
from db.store_errors import counted
from jobs import tool_version
from jobs.github import GitHub, check_pull, put_comment
from jobs.options import (
    FOLDER,
    OUTPUT_FILE,
    POSITIVE,
    cell_options,
    check_page_address,
    dashboard_option,
    db_option,
    example,
)
from jobs.output.terminal import json_text

#: The file that GitHub Actions shows as the summary of a step.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
#: The least room in a summary for which a report is written.
_LEAST_BYTES = 2000


def _check_picture(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Return the path. Raises `click.UsageError` if no picture of its kind can be made here."""
    if path is None:
        return None
    if path.suffix.lower() not in (".svg", ".png"):
        raise click.UsageError(f"--picture {path.name}: end it in .svg or .png")
    try:
        converter()
    except PictureError as error:
        raise click.UsageError(f"--picture {path.name}: {error}") from None
    return path


def _summary_file(_: click.Context, __: click.Parameter, is_wanted: bool) -> Path | None:
    """Return the file of the step's summary, None if it is not wanted. Raises `click.UsageError` outside of GitHub Actions."""
    path = os.environ.get(SUMMARY_VARIABLE)
    if is_wanted and not path:
        raise click.UsageError(f"--github-summary: {SUMMARY_VARIABLE} is not set; GitHub Actions sets it in each step")
    return Path(path) if is_wanted and path else None


def _comment_writer(_: click.Context, __: click.Parameter, pull: str | None) -> Callable[[str], tuple[str, str]] | None:
    """Return a function that puts our comment on a pull request. Raises `click.UsageError` for a wrong name or no token."""
    if pull is None:
        return None

    repo, number = check_pull(pull)
    return partial(put_comment, GitHub.from_environment(), repo, number)


# These callbacks find everything that can be wrong with the request, before anything is written.
@click.command(epilog=example("report main my-branch --format html --out report.html"))
@click.argument("base")
@click.argument("new")
@click.option(
    "--format",
    "form",
    type=click.Choice(("markdown", "json", "html")),
    default="markdown",
    help="The format of --out, or of what is printed.",
)
@click.option("--out", type=OUTPUT_FILE, help="Write to this file [standard output].")
@cell_options
@click.option(
    "--across",
    nargs=2,
    metavar="CONFIG CONFIG",
    help="Compare two configs of one side; BASE and NEW are then the same side.",
)
@click.option("--limit", "rows", type=POSITIVE, default=50, help="Rows of each Markdown table.")
@click.option("--picture", type=OUTPUT_FILE, callback=_check_picture, help="Write a chart to this file, .svg or .png.")
@click.option("--chart", type=click.Choice(("changes", "suites")), default="changes", help="Its chart.")
@dashboard_option
@click.option(
    "--github-summary",
    "summary",
    is_flag=True,
    callback=_summary_file,
    help="Append the Markdown to the job's summary (GITHUB_STEP_SUMMARY).",
)
@click.option(
    "--comment",
    callback=_comment_writer,
    metavar="OWNER/REPO#N",
    help="Write it into one comment on this pull request, which is edited next time. Needs GITHUB_TOKEN.",
)
@click.option(
    "--again-plan", type=OUTPUT_FILE, help="Write what to measure again to this file, for `run --again FILE`."
)
@db_option
def report_command(
    base: str,
    new: str,
    form: str,
    out: Path | None,
    chosen: CellFilter,
    across: tuple[str, str] | None,
    rows: int,
    picture: Path | None,
    chart: str,
    dashboard_url: str,
    summary: Path | None,
    comment: Callable[[str], tuple[str, str]] | None,
    again_plan: Path | None,
    database: str,
) -> None:
    """Report on NEW against BASE: a verdict in one sentence, and what got worse first, with its evidence.

    Each cell has a link and the command that measures it again. Suites, environment, and what to measure again follow.
    Exit code 3 if the two have no cell in common.
    """
    if across and base != new:
        raise click.UsageError(f"--across compares two configs of one side: write `report {new} {new} --across ...`")
    with open_store(database, write=False).connect() as connection:
        filters = expand_patterns(connection, chosen)
        report = build_report(connection, base, new, filters, dashboard_url, across)
    text = draw(report, form, rows)
    drawn = _picture(report, chart, picture) if picture else b""
    if out:
        write_output(out, text)
    if picture and drawn:
        write_output(picture, drawn)
    if again_plan:
        write_output(again_plan, json.dumps(report.again.to_plan(), indent=2) + "\n")
    if summary:
        _append_summary(summary, report, rows)
    if not (out or picture or summary or comment):
        click.echo(text, nl=False)
    if comment:
        done, url = comment(markdown(report, limit=BODY_BYTES, rows=rows))
        click.echo(f"comment {done}: {url}")
    missing = f"no picture: there is no change for the chart {chart!r} to show" if picture and not drawn else ""
    if not report.in_common:
        missing = "the two sides have no cell in common"
    if missing:
        click.echo(f"inductor-watch: {missing}", err=True)
        raise SystemExit(3)


def _picture(report: Report, chart: str, path: Path) -> bytes:
    """Return the chart in the format of the file's name; empty if it would show nothing."""
    drawn = svg(report, chart)
    return png(drawn) if drawn and path.suffix.lower() == ".png" else drawn.encode()


def _append_summary(path: Path, report: Report, rows: int) -> None:
    """Append as much of the report as fits into the step's 1 MiB; GitHub drops a longer summary.

    Raises:
        click.UsageError: earlier commands of the step have left no room.
    """
    used = path.stat().st_size if path.exists() else 0
    room = SUMMARY_BYTES - used - 2
    if room < _LEAST_BYTES:
        raise click.UsageError(
            f"--github-summary: this step's summary is full ({used} of {SUMMARY_BYTES} bytes); use another step"
        )
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write("\n" * bool(used) + markdown(report, limit=room, rows=rows))


def draw(report: Report, form: str, rows: int) -> str:
    """Return the report in the format of `--format`, with a line end."""
    if form == "json":
        return json_text(report.to_json()) + "\n"
    if form == "html":
        return html(report)

    return markdown(report, rows=rows)


@click.command(epilog=example("publish site --nights 60"))
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--nights", type=POSITIVE, default=NIGHTS, help="How many of the newest nights.")
@click.option(
    "--address",
    default="",
    show_default=False,
    callback=check_page_address,
    metavar="URL",
    help="Where the site will be, for the links of its feed.",
)
@db_option
def publish_command(folder: Path, nights: int, address: str, database: str) -> None:
    """Write the newest nights into DIR as pages that need no server: docs/site.md.

    Pages that did not change since the last time stay as they are; pages of older nights are removed.
    """
    engine = open_store(database, write=False)
    done = publish(engine, folder, nights=nights, address=address, made_by=tool_version())
    counts = f"{counted(done.nights, 'night')}, {counted(done.pairs, 'pair')} with verdicts"
    files = f"{done.written} files written, {done.kept} kept, {done.removed} removed"
    click.echo(f"{folder}: {counts}; {files}; {done.size / 1e6:.1f} MB")
    click.echo(f"look at it: python -m http.server --directory {folder}")
