"""`inductor-watch report BASE NEW`: what changed, for a job summary, a pull request, a file, or another program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.options import Renamed, cell_options, dashboard_option, db_option

if TYPE_CHECKING:
    from analysis.reports.facts import Report
    from db.queries.filters import CellFilter

FORMATS = ("markdown", "json", "html")
#: The file that GitHub Actions shows as the summary of a step.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
#: With less room than this left in a summary there is no report worth the name.
_LEAST_BYTES = 2000
_PICTURES = (".svg", ".png")


@click.command(
    help="Report on NEW against BASE: a verdict in one sentence, what got worse first, with its evidence, a link and the command "
    "that measures it again; suites, environment, and what to measure again. Exit code 3 if the two have no cell in common."
)
@click.argument("base")
@click.argument("new")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="markdown",
    show_default=True,
    help="The format of --out, or of what is printed.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file [standard output].")
@cell_options
@click.option(
    "--across",
    nargs=2,
    metavar="CONFIG CONFIG",
    help="Compare two configs of one side; BASE and NEW are then the same side.",
)
@click.option(
    "--limit",
    "rows",
    cls=Renamed,
    former=["--rows"],
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Rows of each Markdown table.",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a chart to this file, .svg or .png.",
)
@click.option(
    "--chart",
    type=click.Choice(("changes", "suites")),
    default="changes",
    show_default=True,
    help="Its chart.",
)
@dashboard_option
@click.option("--github-summary", is_flag=True, help="Append the Markdown to the job's summary (GITHUB_STEP_SUMMARY).")
@click.option(
    "--comment",
    "pull",
    metavar="OWNER/REPO#N",
    help="Write it into one comment on this pull request, which is edited next time. Needs GITHUB_TOKEN.",
)
@click.option(
    "--again-plan",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what to measure again to this file, for `run --again FILE`.",
)
@db_option
def command(
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
    github_summary: bool,
    pull: str | None,
    again_plan: Path | None,
    database: str,
) -> None:
    """Gathers the facts once and writes them wherever they are wanted."""
    from analysis.reports.facts import build_config_report, build_report
    from analysis.reports.markdown import BODY_BYTES, markdown
    from collector.output_file import write_output
    from db.engine import open_store
    from db.queries.filters import expand_patterns

    # All that can be wrong with the request is found before anything is written.
    if across and base != new:
        raise click.UsageError(f"--across compares two configs of one side: write `report {new} {new} --across ...`")
    if picture:
        _check_picture(picture)
    summary = _summary_file() if github_summary else None
    comment = _comment_writer(pull) if pull else None
    with open_store(database, write=False).connect() as connection:
        filters = expand_patterns(connection, chosen)
        report = (
            build_config_report(connection, new, across, filters, dashboard_url)
            if across
            else build_report(connection, base, new, filters, dashboard_url)
        )
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
    if missing := _missing(report, chart, bool(picture and not drawn)):
        click.echo(f"inductor-watch: {missing}", err=True)
        raise SystemExit(3)


def _check_picture(path: Path) -> None:
    """Raises `click.UsageError` if no picture can be made of that kind, here."""
    from analysis.reports.charts import PictureError, converter

    if path.suffix.lower() not in _PICTURES:
        raise click.UsageError(f"--picture {path.name}: end it in {' or '.join(_PICTURES)}")
    try:
        converter()
    except PictureError as error:
        raise click.UsageError(f"--picture {path.name}: {error}") from None


def _picture(report: Report, chart: str, path: Path) -> bytes:
    """The chart as the file's name asks for it; empty where it would show nothing."""
    from analysis.reports.charts import png, svg

    drawn = svg(report, chart)
    return png(drawn) if drawn and path.suffix.lower() == ".png" else drawn.encode()


def _summary_file() -> Path:
    """The file of the step's summary. Raises `click.UsageError` outside of GitHub Actions."""
    if not os.environ.get(SUMMARY_VARIABLE):
        raise click.UsageError(f"--github-summary: {SUMMARY_VARIABLE} is not set; GitHub Actions sets it in each step")
    return Path(os.environ[SUMMARY_VARIABLE])


def _append_summary(path: Path, report: Report, rows: int) -> None:
    """Appends what fits into the rest of the step's 1 MiB; GitHub drops a longer summary.

    Raises:
        click.UsageError: earlier commands of the step have left no room.
    """
    from analysis.reports.markdown import SUMMARY_BYTES, markdown

    used = path.stat().st_size if path.exists() else 0
    room = SUMMARY_BYTES - used - 2
    if room < _LEAST_BYTES:
        raise click.UsageError(
            f"--github-summary: this step's summary is full ({used} of {SUMMARY_BYTES} bytes); use another step"
        )
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write("\n" * bool(used) + markdown(report, limit=room, rows=rows))


def _comment_writer(pull: str) -> Callable[[str], tuple[str, str]]:
    """What writes a text into our comment on a pull request. Raises `click.UsageError` for a wrong one or without a token."""
    from jobs.github.api import GitHub, check_pull
    from jobs.github.comment import put_comment

    repo, number = check_pull(pull)
    return partial(put_comment, GitHub.from_environment(), repo, number)


def _missing(report: Report, chart: str, has_no_picture: bool) -> str:
    """What there is too little of; empty if nothing."""
    if not report.in_common:
        return "the two sides have no cell in common"
    return f"no picture: there is no change for the chart {chart!r} to show" if has_no_picture else ""


def draw(report: Report, form: str, rows: int) -> str:
    """The report in one of `FORMATS`, with a line end."""
    if form == "json":
        return json.dumps(report.to_json(), indent=2) + "\n"
    if form == "html":
        from analysis.reports.html import html

        return html(report)
    from analysis.reports.markdown import markdown

    return markdown(report, rows=rows)
