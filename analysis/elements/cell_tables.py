"""Tables of cells: what changed, and why a cell did not pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from analysis.compare.cell_comparison import CellComparison, direction
from analysis.compare.cell_verdicts import LEAK
from analysis.compare.findings import Finding
from analysis.elements.markup import Link, anchor, change_cells, joined, lines, span, table
from analysis.elements.wording import ABSENT, ChangeWords, judged, number, signed, unjudged
from analysis.present import beside_words, eager_words
from analysis.reports.permalinks import cell_query
from collector.metrics import METRICS, Dimension
from db.queries.cells import CellName
from db.queries.side_rows import CellState

#: Characters of a message that are shown.
_MESSAGE = 220


def change_table(title: str, changed: Iterable[tuple[CellComparison, Finding]], link: Link, note: str = "") -> Markup:
    """Return a table with a line for each change."""
    head = ["cell", "metric", "base", "new", "change", "95 %", "verdict", "beside"]
    drawn = table(title, head, [_change_row(*item, link) for item in changed], note=note, numbers=range(2, 7))
    return Markup('<div class="iw-list iw-changes">{}</div>').format(drawn)


def _change_row(one: CellComparison, finding: Finding, link: Link) -> tuple[str, ...]:
    metric = finding.metric
    if metric is None:
        words = span(finding.verdict.look, finding.verdict.value)
        return _short_name(one.cell, link), "status", one.base.status or "", one.new.status or "", "", "", words, ""
    values = [number(metric, state.values.get(metric)) for state in (one.base, one.new)]
    change = judged(one, metric)
    change = change._replace(intervals=change.intervals[:1]) if change else None
    eager = eager_words(one.new) if finding.dimension is Dimension.LATENCY else ""
    beside = span("soft", ", ".join(filter(None, (beside_words(one, finding), eager))))
    return _short_name(one.cell, link), METRICS[metric].title, *values, *change_cells(change), beside


def _short_name(cell: CellName, link: Link) -> Markup:
    """A cell as a link on one line; a pointer at it shows where it belongs."""
    phase = "" if cell.phase == "inference" else cell.phase
    name = joined(" ", [cell.model, span("soft", " ".join(filter(None, (phase, cell.config))))])
    where = f"{cell.suite}, {cell.phase}, {cell.dtype}, {cell.device}"
    return Markup('<a href="{}" target="_self" title="{}">{}</a>').format(
        link("model", **cell_query(cell)), where, name
    )


def named(cell: CellName, link: Link) -> Markup:
    """A cell as a link to its page, and below it where it belongs."""
    name = joined(" ", [cell.model, span("soft", cell.config)])
    return lines(anchor(link("model", **cell_query(cell)), name), where(cell))


def where(cell: CellName) -> Markup:
    """Return the suite, phase and dtype of a cell."""
    return span("soft", f"{cell.suite}, {cell.phase}, {cell.dtype}")


def reason(state: CellState) -> Markup:
    """Why a cell did not pass, in a line or two."""
    if state.status is None:
        return span("soft", "planned, and no measurement of it was stored")
    head = " in ".join(filter(None, (state.exception, state.stage)))
    message = state.message if state.message != state.exception else ""
    words = ": ".join(filter(None, (head, message)))
    words = words if len(words) <= _MESSAGE else f"{words[:_MESSAGE]}..."
    hint = span("soft", f"Hint: {state.hint}") if state.hint else ""
    return lines(words, hint) or span("soft", "no reason was recorded")


def metric_row(metric: str, values: Sequence[float | None], change: ChangeWords | None) -> list[str]:
    """Return a metric's title, its values, and of two values the change with interval and verdict, if it was judged."""
    shown = METRICS[metric]
    title = Markup('<span title="{}">{}</span>').format(shown.meaning, shown.title)
    cells = [title, *(number(metric, value) for value in values)]
    if len(values) < 2:
        return cells
    base, new = values
    change = change or unjudged(base, new)
    size, interval, word = change_cells(change)
    if shown.judged_by and not word:
        word = span("soft", f"not judged: {METRICS[shown.judged_by].title} is")
    if base is None or new is None:
        size = ABSENT
    elif shown.is_count or metric == LEAK or change is None:
        # Counts and leaks may begin at 0: their difference is shown.
        sense = direction(metric, base, new) if shown.is_count else change.look if change else None
        size = span(sense if sense in ("better", "worse") else "calm", signed(new - base, 0, shown.unit))
    return [*cells, size, interval, word]
