"""`inductor-watch report BASE NEW`: what changed, for a job summary, a pull request, a file, or another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobs.options import dashboard_option, db_option

if TYPE_CHECKING:
    from jobs.report_facts import Report

FORMATS = ("markdown", "json", "html")


@click.command(
    help="Report on NEW against BASE: a verdict in one sentence, what got worse first, with its evidence, a link and the command "
    "that measures it again; suites, environment, and what to measure again. Exit code 3 if the two have no cell in common."
)
@click.argument("base")
@click.argument("new")
@click.option("--format", "form", type=click.Choice(FORMATS), default="markdown", show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--suite", "suites", multiple=True)
@click.option("--model", "models", multiple=True)
@click.option("--phase", "phases", multiple=True)
@click.option("--config", "configs", multiple=True, help="A config's name or config_id.")
@click.option("--rows", type=click.IntRange(min=1), default=50, show_default=True, help="Rows of each Markdown table.")
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
    suites: tuple[str, ...],
    models: tuple[str, ...],
    phases: tuple[str, ...],
    configs: tuple[str, ...],
    rows: int,
    dashboard_url: str,
    github_summary: bool,
    pull: str | None,
    again_plan: Path | None,
    database: str,
) -> None:
    """Gathers the facts once and writes them wherever they are wanted."""
    from analysis.compare import CellFilter
    from db.engine import open_store
    from jobs.github_api import GitHub, check_pull
    from jobs.github_comment import put_comment
    from jobs.report_facts import build_report
    from jobs.report_markdown import BODY_BYTES, markdown
    from jobs.report_output import append_summary, summary_file, write_whole

    # All that can be wrong with the request is found before anything is written.
    summary = summary_file() if github_summary else None
    target = (GitHub.from_environment(), *check_pull(pull)) if pull else None
    with open_store(database, write=False).connect() as connection:
        report = build_report(connection, base, new, CellFilter(suites, models, phases, (), (), configs), dashboard_url)
        text = draw(report, form, rows)
        plan = json.dumps(report.again.to_plan(), indent=2) + "\n"
    if out:
        write_whole(out, text)
    if again_plan:
        write_whole(again_plan, plan)
    if summary:
        append_summary(summary, lambda room: markdown(report, limit=room, rows=rows))
    if not (out or summary or target):
        click.echo(text, nl=False)
    if target:
        github, repo, number = target
        done, url = put_comment(github, repo, number, markdown(report, limit=BODY_BYTES, rows=rows))
        click.echo(f"comment {done}: {url}")
    if not report.in_common:
        click.echo("inductor-watch: the two sides have no cell in common", err=True)
        raise SystemExit(3)


def draw(report: Report, form: str, rows: int) -> str:
    """The report in one of `FORMATS`, with a line end."""
    if form == "json":
        return json.dumps(report.document(), indent=2) + "\n"
    if form == "html":
        from jobs.report_html import html

        return html(report)
    from jobs.report_markdown import markdown

    return markdown(report, rows=rows)
