"""A report as one HTML file that loads nothing; light and dark."""

from __future__ import annotations

from markupsafe import Markup

from analysis.compare.cell_outcome import Outcome
from analysis.reports.charts import CHARTS, IN_PAGE, PictureError, svg
from analysis.reports.facts import SHOWN, Report
from analysis.reports.templating import render_page

#: Rows of a table: a browser lays out some thousand rows well. The rest is counted only.
ROWS = 2000
_LOOKS = {Outcome.REGRESSED: "bad", Outcome.BROKE: "bad", Outcome.IMPROVED: "good", Outcome.FIXED: "good"}


def html(report: Report) -> str:
    """The whole page."""
    return render_page(
        "report.html.j2",
        report=report,
        rows=ROWS,
        looks=_LOOKS,
        average_headings=[f"!{title}" for title in SHOWN.values()],
        charts={chart: _chart(report, chart) for chart in CHARTS},
    )


def _chart(report: Report, chart: str) -> str:
    """The chart as SVG in the colours of the page, or as a line of text what is missing to draw it."""
    try:
        return Markup(svg(report, chart, IN_PAGE))  # noqa: S704 -- drawn here
    except PictureError as error:
        return str(error)
