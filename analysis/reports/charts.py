"""The charts of a report: each cell's change and each suite's averages, with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import altair as alt

from analysis.compare.verdicts import Outcome
from analysis.reports.facts import CellFacts, Report
from analysis.reports.suites import SHOWN, VERDICT_LOOKS, SuiteFacts
from analysis.reports.words import called, interval, percent
from collector.metrics import METRICS
from db.errors import one_line

Look = Literal["bad", "good", "calm"]

#: The names of the charts, as `report --chart` takes them.
CHARTS = ("changes", "suites")
#: Colours of a file, on white. Orange and blue are told apart with any colour vision.
ON_PAPER = {
    **{"ink": "#1a1f26", "soft": "#5c6670", "line": "#d5dae0", "back": "#ffffff"},
    **{"bad": "#b44a00", "good": "#0b61a4", "calm": "#5c6670"},
}
#: The same by the variables of the HTML report's style sheet, light or dark.
IN_PAGE = {name: f"var(--{'soft' if name == 'calm' else name})" for name in ON_PAPER}
#: PNG pixels for a pixel of the chart: sharp on a screen of high density, and in a slide.
SCALE = 2.0

#: Rows of a chart: more would not be read.
_ROWS = 40
_LOOKS: dict[str, Look] = {"worse": "bad", "better": "good", "calm": "calm"}
#: What the chart of changes shows, in this order.
_OUTCOMES = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED)
#: Pixels: the whole width, that of the names, of the labels behind a lone column and behind one of several, a row's height.
_WIDTH, _NAMES, _LABEL, _SHORT_LABEL, _ROW = 1120, 420, 290, 72, 20
#: The relative change at the edge of a column: at least, and at most, so that one wide interval does not hide all others.
_REACH = (0.02, 0.5)
#: Letters that fit into the names' column, and into a title.
_NAME_LETTERS, _TITLE_LETTERS = 66, 126
#: The heading of the lone column of the chart of changes.
_DIRECTIONS = "smaller | larger"
_FONT = "system-ui, 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"


class PictureError(Exception):
    """A chart that cannot be drawn; one line for a person."""


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


@dataclass(frozen=True, slots=True)
class _Plot:
    """What one chart shows: a row for each name."""

    title: str
    note: str
    columns: list[str]
    names: list[str]
    marks: list[Mark]


def svg(report: Report, chart: str, colors: Mapping[str, str] = ON_PAPER) -> str:
    """A chart of `CHARTS` as one `<svg>` element; empty where the report has no change for it.

    Raises `PictureError` where vl-convert is not installed.
    """
    plot = _suites(report) if chart == "suites" else _changes(report)
    if not plot.marks:
        return ""
    left = f"; the first {_ROWS} of {len(plot.names)}" if len(plot.names) > _ROWS else ""
    notes = [_sides(report), plot.note + left]
    return draw(plot.title, notes, plot.columns, plot.names[:_ROWS], plot.marks, colors)


def draw(
    title: str,
    notes: Sequence[str],
    columns: Sequence[str],
    names: Sequence[str],
    marks: Iterable[Mark],
    colors: Mapping[str, str] = ON_PAPER,
) -> str:
    """A forest plot as SVG: a row for each name, a mark in each column where it has one.

    Raises `PictureError` where vl-convert is not installed.
    """
    shown = [mark for mark in marks if mark.row < len(names)]
    heading = alt.TitleParams(_short(title, _TITLE_LETTERS), subtitle=[_short(note, _TITLE_LETTERS) for note in notes])
    drawn_columns = (_column(column, shown, names, len(columns), colors) for column in columns)
    parts = [_names(names, colors), *(part for parts in drawn_columns for part in parts)]
    chart = (
        alt.hconcat(*parts, title=heading, spacing=12)
        .configure(background=colors["back"], font=_FONT, padding=16)
        .configure_view(stroke=None)
        .configure_axis(labelColor=colors["soft"], domain=False, ticks=False)
        .configure_title(color=colors["ink"], subtitleColor=colors["soft"], anchor="start", fontSize=15, offset=12)
    )
    drawn: str = converter().vegalite_to_svg(chart.to_dict(validate=False), allowed_base_urls=[])
    return drawn


def png(svg_text: str) -> bytes:
    """The picture of an SVG text, `SCALE` times as large. Raises `PictureError` where vl-convert is not installed."""
    drawn: bytes = converter().svg_to_png(svg_text, scale=SCALE)
    return drawn


def converter() -> ModuleType:
    """The module that turns charts into files. Raises `PictureError` where it is not installed."""
    try:
        import vl_convert
    except ImportError as error:
        raise PictureError("charts need vl-convert, which is not installed: pip install vl-convert-python") from error
    return vl_convert


def _sides(report: Report) -> str:
    if report.across:
        return f"base {report.across[0]}, new {report.across[1]}, of {report.comparison.new.title}"
    return f"base {report.comparison.base.title}, new {report.comparison.new.title}"


def _changes(report: Report) -> _Plot:
    """Each cell that is not unchanged and has a change, the worst first."""
    cells = [cell for outcome in _OUTCOMES for cell in report.of(outcome) if cell.change is not None and cell.metric]
    note = "adjusted change from base to new and its 95 % interval; filled where it is known"
    names, marks = [cell.cell for cell in cells], [_change(row, cell) for row, cell in enumerate(cells)]
    return _Plot(report.sentence, note, [_DIRECTIONS], names, marks)


def _change(row: int, cell: CellFacts) -> Mark:
    # The interval is of the adjusted change. A cell that was not judged has none.
    change = cell.change if cell.adjusted is None else cell.adjusted
    label = f"{percent(change)} {METRICS[str(cell.metric)].title}, {called(cell.verdict)}"
    look = _LOOKS[VERDICT_LOOKS.get(cell.verdict, "calm")]
    return Mark(row, _DIRECTIONS, change or 0.0, cell.low, cell.high, look, label)


def _suites(report: Report) -> _Plot:
    """Each suite and config that has an average on both sides."""
    rows = [suite for suite in report.suites if any(suite.paired.figures[name].change is not None for name in SHOWN)]
    groups = (suite.paired.group for suite in rows)
    names = [f"{group.suite} {group.phase} {group.dtype} {group.device} {group.config}" for group in groups]
    marks = [mark for row, suite in enumerate(rows) for mark in _averages(row, suite)]
    note = "averages over the cells that pass on both sides, 95 % interval over models"
    return _Plot("Suites: change from base to new", note, list(SHOWN.values()), names, marks)


def _averages(row: int, suite: SuiteFacts) -> Iterable[Mark]:
    for metric, column in SHOWN.items():
        change, within = suite.paired.figures[metric].change, suite.intervals[metric]
        if change is None:
            continue
        low, high = (within.low - 1, within.high - 1) if within else (None, None)
        yield Mark(row, column, change, low, high, _LOOKS[suite.looks[metric]], percent(change))


def _names(names: Sequence[str], colors: Mapping[str, str]) -> Any:
    rows = [{"row": row, "name": _short(name, _NAME_LETTERS), "full": name} for row, name in enumerate(names)]
    chart = alt.Chart(alt.Data(values=rows)).mark_text(align="left", color=colors["ink"], fontSize=11.5)
    return chart.encode(x=alt.value(0), y=_y(names), text="name:N", description="full:N").properties(
        width=_NAMES, height=_ROW * len(names)
    )


def _column(
    column: str, marks: Sequence[Mark], names: Sequence[str], columns: int, colors: Mapping[str, str]
) -> list[Any]:
    """The marks of one column, on an axis that reaches as far below zero as above, and the labels behind them.

    The labels have a width of their own: a browser may have a wider font than the one that they were measured with.
    """
    label = _LABEL if columns == 1 else _SHORT_LABEL
    width = (_WIDTH - _NAMES) / columns - label - 24
    own = [mark for mark in marks if mark.column == column]
    reach = _reach(own)
    base = alt.Chart(alt.Data(values=[_row(mark, names, reach) for mark in own])).encode(y=_y(names))
    percents = "datum.value == 0 ? '0 %' : format(100 * datum.value, '+') + ' %'"
    grid = alt.condition("datum.value == 0", alt.value(colors["soft"]), alt.value(colors["line"]))
    axis = alt.Axis(title=None, labelExpr=percents, gridColor=grid, tickCount=4 if columns == 1 else 2)
    low = alt.X("low:Q", axis=axis, scale=alt.Scale(domain=[-reach, reach], nice=False))
    title = alt.TitleParams(column, color=colors["soft"], fontSize=11, fontWeight="normal", anchor="middle", offset=4)
    *layers, labels = _layers(base, low, colors)
    height = _ROW * len(names)
    plot = alt.layer(*layers).properties(width=width, height=height, title=title)
    return [plot, labels.properties(width=label, height=height)]


def _layers(base: Any, low: Any, colors: Mapping[str, str]) -> list[Any]:
    """Intervals, arrow heads where they go on beyond the edge, dots, and the labels."""

    def by_look(channel: Any, calm: str) -> Any:
        scale = alt.Scale(domain=["bad", "good", "calm"], range=[colors["bad"], colors["good"], calm])
        return channel("look:N", legend=None, scale=scale)

    def arrow(direction: str, offset: int) -> Any:
        mark = base.mark_point(
            shape=f"triangle-{direction}", xOffset=offset, filled=True, opacity=1, size=50, aria=False
        )
        return mark.transform_filter(f"datum.beyond_{direction}").encode(x=f"edge_{direction}:Q", color=color)

    color = by_look(alt.Color, colors["calm"])
    # Filled where a change is known, hollow where not: it is told without colour, too.
    fill, stroke = by_look(alt.Fill, "none"), by_look(alt.Stroke, colors["calm"])
    dots = base.mark_point(size=42, strokeWidth=1.4, opacity=1)
    return [
        base.mark_rule(strokeWidth=2, aria=False).encode(x=low, x2="high:Q", color=color),
        *(arrow("left", -6), arrow("right", 6)),
        dots.encode(x="change:Q", stroke=stroke, fill=fill, description="description:N"),
        base.mark_text(align="left", fontSize=11.5, aria=False).encode(x=alt.value(0), text="label:N", color=color),
    ]


def _y(names: Sequence[str]) -> Any:
    return alt.Y("row:O", axis=None, scale=alt.Scale(domain=list(range(len(names)))))


def _row(mark: Mark, names: Sequence[str], reach: float) -> dict[str, Any]:
    """A mark as Vega sees it, with its ends within the column."""
    inside = {
        name: None if value is None else max(-reach, min(reach, value))
        for name, value in (("change", mark.change), ("low", mark.low), ("high", mark.high))
    }
    within = "" if mark.low is None else f", 95 % interval {interval(mark.low, mark.high)}"
    ends = [end for end in (mark.low, mark.high) if end is not None]
    return {
        "row": mark.row,
        "look": mark.look,
        "label": one_line(mark.label, 200),
        "description": one_line(f"{names[mark.row]}: {mark.label}{within}", 2000),
        "edge_left": -reach,
        "edge_right": reach,
        "beyond_left": any(end < -reach for end in ends),
        "beyond_right": any(end > reach for end in ends),
        **inside,
    }


def _reach(marks: Sequence[Mark]) -> float:
    """The change at the edge of a column."""
    ends = [abs(end) for mark in marks for end in (mark.change, mark.low, mark.high) if end is not None]
    return max(_REACH[0], min(1.05 * max(ends, default=0.0), _REACH[1]))


def _short(text: str, letters: int) -> str:
    """The text, without its middle where it is too long: both ends of a cell's name tell something."""
    text = one_line(text, 2000)
    if len(text) <= letters:
        return text
    tail = letters // 2
    return f"{text[: letters - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"
