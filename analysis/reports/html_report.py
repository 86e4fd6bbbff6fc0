"""A report as one HTML file that loads nothing, and its charts with 95 % intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import altair as alt
from markupsafe import Markup

from analysis.compare.cell_comparison import Finding, Look, Outcome
from analysis.compare.suite_groups import SuiteChange
from analysis.present import called, interval, percent
from analysis.reports.facts import SHOWN, Report
from analysis.reports.markdown_report import render_page
from collector.metrics import METRICS
from collector.usage_errors import ExpectedError
from collector.vocabulary import batch_word
from db.queries.cells import CellName
from db.store_errors import one_line

#: The names of the charts, as `report --chart` takes them.
CHARTS = ("changes", "suites")
#: Colours of a file, on white. People with any colour vision can distinguish orange and blue.
ON_PAPER = {
    **{"ink": "#1a1f26", "soft": "#5c6670", "line": "#d5dae0", "back": "#ffffff"},
    **{"worse": "#b44a00", "better": "#0b61a4", "calm": "#5c6670"},
}
#: Colours by the variables of the HTML report's style sheet, light or dark.
IN_PAGE = {
    **{name: f"var(--{name})" for name in ("ink", "soft", "line", "back")},
    **{"worse": "var(--bad)", "better": "var(--good)", "calm": "var(--soft)"},
}
#: PNG pixels per pixel of the chart: sharp on a screen of high density, and in a slide.
SCALE = 2.0

#: Most rows of a chart: nobody would read more.
_ROWS = 25
#: The verdicts that the chart of changes shows, in this order.
_OUTCOMES = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED)
#: Pixels: all columns together without names and labels, the largest width of a name or label, a row's height.
_WIDTH, _NAMES, _ROW = 540, 420, 20
#: The least and largest relative change at the edge of a column: one wide interval must not hide all others.
_REACH = (0.02, 0.5)
#: Letters that fit into the names' column, and into a title.
_NAME_LETTERS, _TITLE_LETTERS = 66, 126
#: The heading of the lone column of the chart of changes.
_DIRECTIONS = "smaller | larger"
_FONT = "system-ui, 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"


class PictureError(ExpectedError):
    """The error that a chart cannot be drawn; its text is one line for a person."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A change and its 95 % interval, both relative (0.02 is 2 %), in a row and column; `label` stands beside it."""

    row: int
    column: str
    change: float
    low: float | None
    high: float | None
    look: Look
    label: str


def svg(report: Report, chart: str, colors: Mapping[str, str] = ON_PAPER) -> str:
    """Draw a chart of `CHARTS` as one `<svg>` element; empty where the report has no change for it.

    Raise `PictureError` if vl-convert is not installed.
    """
    worse, _, better = report.sentence.partition(". ")
    if chart == "suites":
        title, note = (
            "Suites: change from base to new",
            "averages over the cells that pass on both sides, 95 % interval over models",
        )
        columns, (names, marks) = list(SHOWN.values()), _suites(report)
    else:
        title, note = (
            worse,
            "adjusted change from base to new and its 95 % interval; filled where it is known",
        )
        columns, (names, marks) = [_DIRECTIONS], _changes(report)
    if not marks:
        return ""
    left = f"; the first {_ROWS} of {len(names)}" if len(names) > _ROWS else ""
    notes = [*([better] if better and title == worse else []), _sides(report), note + left]
    return draw(title, notes, columns, names[:_ROWS], marks, colors)


def draw(
    title: str,
    notes: Sequence[str],
    columns: Sequence[str],
    names: Sequence[str],
    marks: Iterable[Mark],
    colors: Mapping[str, str] = ON_PAPER,
) -> str:
    """Draw a forest plot as SVG: a row for each name, and its mark in each column, if it has one.

    Raise `PictureError` if vl-convert is not installed.
    """
    shown = [mark for mark in marks if mark.row < len(names)]
    heading = alt.TitleParams(_short(title, _TITLE_LETTERS), subtitle=[_short(note, _TITLE_LETTERS) for note in notes])
    parts: list[alt.LayerChart] = []
    for column in columns:
        part = plot([mark for mark in shown if mark.column == column], names, colors, named=not parts)
        head = alt.TitleParams(
            column, color=colors["soft"], fontSize=11, fontWeight="normal", anchor="middle", offset=4
        )
        parts.append(part.properties(width=_WIDTH / len(columns), height=_ROW * len(names), title=head))
    chart = (
        alt.hconcat(*parts, title=heading, spacing=12)
        .configure(background=colors["back"], font=_FONT, padding=16)
        .configure_view(stroke=None)
        .configure_axis(labelColor=colors["ink"], gridColor=colors["line"], domain=False, ticks=False)
        .configure_title(color=colors["ink"], subtitleColor=colors["soft"], anchor="start", fontSize=15, offset=12)
    )
    drawn: str = converter().vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    return drawn


def plot(
    marks: Sequence[Mark], names: Sequence[str], colors: Mapping[str, str], *, named: bool = True
) -> alt.LayerChart:
    """Draw one column of a forest plot: an interval as a line, the change as a dot, names at the left, labels at the right.

    A dot is filled if the change is certain (better or worse), so that this shows without colour, too. Marks beyond the edge are
    drawn at the edge.
    """
    ends = [abs(end) for mark in marks for end in (mark.change, mark.low, mark.high) if end is not None]
    reach = max(_REACH[0], min(1.05 * max(ends, default=0.0), _REACH[1]))
    percents = alt.Axis(
        title=None, tickCount=4, labelExpr="datum.value == 0 ? '0 %' : format(100 * datum.value, '+') + ' %'"
    )
    x = alt.X("low:Q", axis=percents, scale=alt.Scale(domain=[-reach, reach], nice=False, clamp=True))
    looks = ["worse", "better", "calm"]
    stroke, fill = ([colors["worse"], colors["better"], calm] for calm in (colors["calm"], "transparent"))
    base = alt.Chart(alt.Data(values=[_row(mark, names) for mark in marks]))
    left = {number: _short(name, _NAME_LETTERS) for number, name in enumerate(names)} if named else {}
    right = {mark.row: one_line(mark.label, 200) for mark in marks}
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=colors["calm"], aria=False).encode(x="zero:Q")
    lines = base.mark_rule(strokeWidth=2, aria=False).encode(
        x=x,
        x2="high:Q",
        y=_y(len(names), "left", left),
        color=alt.Color("look:N", legend=None, scale=alt.Scale(domain=looks, range=stroke)),
    )
    dots = base.mark_point(size=42, strokeWidth=1.4, opacity=1).encode(
        x="change:Q",
        y=_y(len(names), "right", right),
        stroke=alt.Stroke("look:N", legend=None, scale=alt.Scale(domain=looks, range=stroke)),
        fill=alt.Fill("look:N", legend=None, scale=alt.Scale(domain=looks, range=fill)),
        description="description:N",
        tooltip=alt.Tooltip("description:N", title=" "),
    )
    return alt.layer(zero, lines, dots).resolve_axis(y="independent")


def png(svg_text: str) -> bytes:
    """Return the PNG of an SVG text, `SCALE` times as large. Raise `PictureError` if vl-convert is not installed."""
    drawn: bytes = converter().svg_to_png(svg_text, scale=SCALE)
    return drawn


def converter() -> ModuleType:
    """Import the module that turns charts into files. Raise `PictureError` if it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise PictureError("charts need vl-convert, which is not installed: pip install vl-convert-python") from error
    return vl_convert


def _sides(report: Report) -> str:
    if report.across:
        return f"base {report.across[0]}, new {report.across[1]}, of {report.comparison.new.title}"
    return f"base {report.comparison.base.title}, new {report.comparison.new.title}"


def _changes(report: Report) -> tuple[list[str], list[Mark]]:
    """Return the names and marks of the findings that have a change and are not unchanged, the worst first."""
    rows = [(row.compared.cell, row.finding) for outcome in _OUTCOMES for row in report.of(outcome)]
    rows = [row for row in rows if row[1].judged and row[1].judged.shown is not None]
    return short_names([cell for cell, _ in rows]), [mark(at, finding) for at, (_, finding) in enumerate(rows)]


def short_names(cells: Sequence[CellName]) -> list[str]:
    """Return the model of each cell with the axes that distinguish it from other cells: the table below has whole names."""
    axes = [name for name in ("phase", "dtype", "device", "config") if len({getattr(cell, name) for cell in cells}) > 1]
    if len({(cell.phase, cell.dtype) for cell in cells}) == len({cell.phase for cell in cells}):
        axes = [name for name in axes if name != "dtype"]  # each phase has one dtype
    sizes = {(cell.model, cell.phase, cell.config): cell.batch_size for cell in cells}
    return [
        " ".join(
            [
                cell.model,
                *(getattr(cell, name) for name in axes),
                *(
                    [batch_word(cell.batch_size)]
                    if sizes[cell.model, cell.phase, cell.config] != cell.batch_size
                    else []
                ),
            ]
        )
        for cell in cells
    ]


def mark(row: int, finding: Finding, column: str = _DIRECTIONS) -> Mark:
    """Return the mark of a finding that has a change. The interval is of the adjusted change."""
    judged = finding.judged
    assert judged is not None  # noqa: S101 -- it has a change
    label = f"{percent(judged.shown)} {METRICS[judged.metric].title}, {called(finding.verdict)}"
    return Mark(row, column, judged.shown or 0.0, judged.low, judged.high, finding.verdict.look, label)


def _suites(report: Report) -> tuple[list[str], list[Mark]]:
    """Return the names and marks of each suite and config that has an average on both sides."""
    rows = [suite for suite in report.suites if any(suite.figures[name].change is not None for name in SHOWN)]
    groups = (suite.group for suite in rows)
    names = [f"{group.suite} {group.phase} {group.dtype} {group.device} {group.config}" for group in groups]
    return names, [mark for row, suite in enumerate(rows) for mark in _averages(row, suite)]


def _averages(row: int, suite: SuiteChange) -> Iterable[Mark]:
    for metric, column in SHOWN.items():
        found = suite.changes[metric]
        if found is None:
            continue
        low, high = (found.interval.low - 1, found.interval.high - 1) if found.interval else (None, None)
        yield Mark(row, column, found.ratio - 1, low, high, found.look, percent(found.ratio - 1))


def _y(count: int, side: str, texts: Mapping[int, str]) -> alt.Y:
    """Return the axis of rows, from above, with the text of each row at one side."""
    words = f"{json.dumps(texts)}[datum.value] || ''"
    labels = {"labelLimit": _NAMES, "labelOverlap": False, "labelBound": False, "labelFlush": False}
    axis = alt.Axis(orient=side, labelExpr=words, grid=False, title=None, **labels)
    return alt.Y("row:O", axis=axis, scale=alt.Scale(domain=list(range(count))))


def _row(mark: Mark, names: Sequence[str]) -> dict[str, Any]:
    """Return a mark as a row of data for Vega."""
    within = "" if mark.low is None else f", 95 % interval {interval(mark.low, mark.high)}"
    description = one_line(f"{names[mark.row]}: {mark.label}{within}", 2000)
    ends = {"change": mark.change, "low": mark.low, "high": mark.high}
    return {"row": mark.row, "look": mark.look, "description": description, **ends}


def _short(text: str, letters: int) -> str:
    """Return the text, without its middle if it is too long: both ends of a cell's name are informative."""
    text = one_line(text, 2000)
    if len(text) <= letters:
        return text
    tail = letters // 2
    return f"{text[: letters - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


#: Most rows of a table: a browser lays out some thousand rows well. Further rows are only counted.
ROWS = 2000
_LOOKS = {Outcome.REGRESSED: "bad", Outcome.BROKE: "bad", Outcome.IMPROVED: "good", Outcome.FIXED: "good"}


def html(report: Report) -> str:
    """Return the whole page."""
    return render_page(
        "report.html.j2",
        report=report,
        rows=ROWS,
        looks=_LOOKS,
        average_headings=[f"!{title}" for title in SHOWN.values()],
        charts={chart: _chart(report, chart) for chart in CHARTS},
    )


def _chart(report: Report, chart: str) -> str:
    """Return a chart as SVG in the colours of the page, or a line of text on the library that is missing to draw it."""
    try:
        return Markup(svg(report, chart, IN_PAGE))  # noqa: S704 -- drawn here
    except PictureError as error:
        return str(error)
