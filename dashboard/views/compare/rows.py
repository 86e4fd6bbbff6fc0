"""The compare page's table: a row per cell with both sides' values, the change of each, and how each change is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pandas as pd
from markupsafe import Markup

from analysis.compare.adjustment import CONTROL
from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import Outcome
from analysis.compare.code import SAME, WRAPPER
from analysis.compare.leaks import LEAK
from analysis.present import eager_words
from collector.metrics import METRICS, MIN_EFFECT, Place, shown_in
from collector.vocabulary import batch_words
from dashboard.components.changes import ChangeWords, judged, unjudged
from dashboard.components.formats import ABSENT, number
from dashboard.components.markup import Cell, anchor, joined, lines, span
from dashboard.components.outcomes import OUTCOMES, glyph, look, said, status
from db.exporting.formats import without_formulas
from db.queries.cell_names import CellName
from db.queries.side_rows import CellState

#: A table's columns by their heads.
Columns = dict[str, list[Any]]
#: The address of a cell's page.
Link = Callable[[CellName], str]
T = TypeVar("T", CellComparison, CellState)

#: What can be shown, in the table's order, and what is shown unless somebody picks.
COLUMNS, USUAL = shown_in(Place.COLUMN, Place.COMPARE), shown_in(Place.COLUMN)
#: What may have become of generated code, and what it is called. The key is also what the address says.
CODES = {"kernels": "kernels changed", "wrapper": WRAPPER, "same": SAME, "unknown": "not known"}
#: What stands in brackets behind a change: the columns have it, too.
_BESIDE = re.compile(r" \([^)]*\)")
_ORDER = tuple(dict.fromkeys(("broke", "missing", "regressed", "improved", "inconclusive", *OUTCOMES)))


def verdict(one: CellComparison, dimension: str) -> Outcome | None:
    """Return the verdict on a cell in a dimension, or on the whole cell; None where the dimension has none."""
    if not dimension:
        return one.outcome
    found = (finding.verdict for finding in one.findings if finding.dimension == dimension)
    return next(found, None)


def compared_order(cells: Sequence[CellComparison], sort: str = "", dimension: str = "") -> list[CellComparison]:
    """Return the cells, what broke first, or by `sort`: `model`, a metric's name, or `-` and that name.

    By default: broke, missing, regressed, improved, no clear change, then the rest, and within each the largest change
    first. By a metric the largest increase is first, with `-` the largest decrease. With a `dimension` its changes count.
    """
    metric = sort.removeprefix("-")
    if metric in METRICS:
        known = [one for one in cells if one.passes and one.ratio(metric) is not None]
        sign = -1 if sort == metric else 1
        ordered = sorted(known, key=lambda one: (sign * (one.ratio(metric) or 0.0), str(one.cell)))
        left = {one.cell.cell_id for one in known}
        return [
            *ordered,
            *sorted((one for one in cells if one.cell.cell_id not in left), key=lambda one: str(one.cell)),
        ]
    if sort:
        return sorted(cells, key=lambda one: (one.cell.model, str(one.cell)))

    def place(one: CellComparison) -> tuple[int, float, str]:
        of_dimension = (finding for finding in one.findings if finding.dimension == dimension)
        finding = next(of_dimension, None) or one.leading
        return _ORDER.index(verdict(one, dimension) or one.outcome), -finding.size if finding else 0.0, str(one.cell)

    return sorted(cells, key=place)


def compared(
    rows: Sequence[CellComparison], cells: Sequence[CellComparison], metrics: Sequence[str], link: Link
) -> Columns:
    """Return the table of some rows of `cells`, a comparison's, as HTML.

    `cells` say which columns there are: those of which some cell has a value.
    """
    shown = _names([one.cell for one in cells], [one.cell for one in rows], link)
    shown["outcome"] = [Cell(_outcome(one), look(one).replace("calm", "")) for one in rows]
    if any(one.code for one in cells):
        shown["generated code"] = [one.code or ABSENT for one in rows]
    for metric in metrics:
        if any(metric in one.base.values or metric in one.new.values for one in cells):
            shown[METRICS[metric].title] = [_metric(one, metric) for one in rows]
    return shown


def alone(rows: Sequence[CellState], cells: Sequence[CellState], metrics: Sequence[str], link: Link) -> Columns:
    """Return the table of the cells of one side."""
    shown = _names([state.cell for state in cells if state.cell], [state.cell for state in rows if state.cell], link)
    shown["status"] = [status(state) for state in rows]
    if any(state.same_code_as for state in cells):
        nights = [state.same_code_as for state in rows]
        shown["generated code"] = [f"same code as {night}" if night else ABSENT for night in nights]
    for metric in metrics:
        if any(metric in state.values for state in cells):
            shown[METRICS[metric].title] = [Cell(number(metric, state.values.get(metric)), "n") for state in rows]
    return shown


def matching(cells: Sequence[T], words: str, configs: Sequence[str]) -> list[T]:
    """Return the cells whose text has all the words and whose config is one of those named, if any are."""
    wanted = words.lower().split()

    def fits(cell: CellName | None) -> bool:
        if cell is None or (configs and cell.config not in configs):
            return False
        text = " ".join((cell.suite, cell.model, cell.phase, cell.dtype, cell.device, cell.config)).lower()
        return all(word in text for word in wanted)

    return [one for one in cells if fits(one.cell)]


def code_kind(one: CellComparison) -> str:
    """Return what became of a cell's generated code, as a key of `CODES`."""
    if one.code == WRAPPER:
        return "wrapper"
    if one.code_changed is None:
        return "same" if one.new.same_code_as else "unknown"
    return "kernels" if one.code_changed else "same"


def csv(cells: pd.DataFrame) -> bytes:
    """All columns in full precision. A name that a spreadsheet would run as a formula gets an apostrophe before it."""
    return str(without_formulas(cells).to_csv(index=False)).encode()


def _names(cells: Sequence[CellName], rows: Sequence[CellName], link: Link) -> Columns:
    """The model as a link, with what else tells it from other cells, and the config."""
    axes = ("phase", "suite", "dtype", "device", "batch_size")
    several = [name for name in axes if len({getattr(cell, name) for cell in cells}) > 1]

    def where(cell: CellName) -> str:
        return ", ".join(
            batch_words(cell.batch_size) if name == "batch_size" else getattr(cell, name) for name in several
        )

    models = [
        lines(anchor(link(cell), cell.model), span("soft", words) if (words := where(cell)) else "") for cell in rows
    ]
    return {"model": models, "config": [cell.config for cell in rows]}


def _outcome(one: CellComparison) -> Markup:
    parts = []
    for outcome, detail in said(one):
        words = f"{glyph(outcome)} {OUTCOMES[outcome]}".lstrip()
        short = detail.partition(", ")[0] if outcome is Outcome.INCONCLUSIVE else _BESIDE.sub("", detail)
        shown = lines(words, span("soft", short) if short else "")
        parts.append(Markup('<span title="{}">{}</span>').format(detail, shown) if detail != short else shown)
    eager = eager_words(one.new)
    return lines(*parts, span("soft", eager) if eager else "")


def _metric(one: CellComparison, metric: str) -> Cell:
    """Base and new, the change between them, and how the machine moved beside it; a change only where both sides pass."""
    base, new = one.base.values.get(metric), one.new.values.get(metric)
    if base is None and new is None:
        return Cell(ABSENT, "n")
    values = joined(str(span("arrow", "→")), (number(metric, base), number(metric, new)))
    if not one.passes:
        return Cell(values, "n")
    if metric == LEAK or METRICS[metric].is_count:
        known = judged(one, metric)
        difference = f"{new - base:+,.0f}" if base is not None and new is not None and new != base else ""
        return Cell(lines(values, difference), f"n {known.look}" if known and known.look != "calm" else "n")
    known = judged(one, metric) if metric in MIN_EFFECT else unjudged(base, new)
    css = "n" if known is None or known.look == "calm" else f"n {known.look}"
    about = _about(one, metric, known)
    shown = lines(values, *_change_lines(known))
    return Cell(Markup('<span title="{}">{}</span>').format(about, shown) if about else shown, css)


def _change_lines(known: ChangeWords | None) -> list[Markup]:
    """Return the change with its interval, on one line."""
    if known is None:
        return []
    parts = [span("soft", part) for part in known.intervals]
    adjusted = span("soft", "adjusted") if len(parts) > 1 else ""  # base and new do not show this change
    return [joined(" ", (known.size, adjusted, *parts[:1]))]


def _about(one: CellComparison, metric: str, known: ChangeWords | None) -> str:
    """Return what a pointer at a change shows: the change as measured, that of eager beside it, and how many runs it is of."""
    of = one.judged.get(metric)
    runs = [of.base_runs or 0, of.new_runs or 0] if of and metric in CONTROL else [0, 0]
    mean = f"mean of {runs[0]:.0f} / {runs[1]:.0f} runs" if max(runs) > 1 else ""
    return ", ".join(filter(None, (*(known.intervals[1:] if known else ()), mean)))
